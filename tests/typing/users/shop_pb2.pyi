import datetime

from google.protobuf import timestamp_pb2 as _timestamp_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Kind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    KIND_UNSPECIFIED: _ClassVar[Kind]
    KIND_FRUIT: _ClassVar[Kind]
KIND_UNSPECIFIED: Kind
KIND_FRUIT: Kind

class PriceRequest(_message.Message):
    __slots__ = ("item", "count", "kind", "note", "tags", "rates")
    class RatesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: float
        def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...
    ITEM_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    NOTE_FIELD_NUMBER: _ClassVar[int]
    TAGS_FIELD_NUMBER: _ClassVar[int]
    RATES_FIELD_NUMBER: _ClassVar[int]
    item: str
    count: int
    kind: Kind
    note: str
    tags: _containers.RepeatedScalarFieldContainer[str]
    rates: _containers.ScalarMap[str, float]
    def __init__(self, item: _Optional[str] = ..., count: _Optional[int] = ..., kind: _Optional[_Union[Kind, str]] = ..., note: _Optional[str] = ..., tags: _Optional[_Iterable[str]] = ..., rates: _Optional[_Mapping[str, float]] = ...) -> None: ...

class PriceReply(_message.Message):
    __slots__ = ("price",)
    PRICE_FIELD_NUMBER: _ClassVar[int]
    price: float
    def __init__(self, price: _Optional[float] = ...) -> None: ...

class Order(_message.Message):
    __slots__ = ("str", "place", "list", "card", "voucher", "placed", "note")
    class Place(_message.Message):
        __slots__ = ("street",)
        STREET_FIELD_NUMBER: _ClassVar[int]
        street: str
        def __init__(self, street: _Optional[str] = ...) -> None: ...
    STR_FIELD_NUMBER: _ClassVar[int]
    PLACE_FIELD_NUMBER: _ClassVar[int]
    LIST_FIELD_NUMBER: _ClassVar[int]
    CARD_FIELD_NUMBER: _ClassVar[int]
    VOUCHER_FIELD_NUMBER: _ClassVar[int]
    PLACED_FIELD_NUMBER: _ClassVar[int]
    NOTE_FIELD_NUMBER: _ClassVar[int]
    str: str
    place: Order.Place
    list: _containers.RepeatedCompositeFieldContainer[PriceRequest]
    card: str
    voucher: int
    placed: _timestamp_pb2.Timestamp
    note: str
    def __init__(self, str: _Optional[str] = ..., place: _Optional[_Union[Order.Place, _Mapping]] = ..., list: _Optional[_Iterable[_Union[PriceRequest, _Mapping]]] = ..., card: _Optional[str] = ..., voucher: _Optional[int] = ..., placed: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., note: _Optional[str] = ...) -> None: ...
