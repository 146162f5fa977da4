import datetime

from google.api import annotations_pb2 as _annotations_pb2
from google.protobuf import any_pb2 as _any_pb2
from google.protobuf import duration_pb2 as _duration_pb2
from google.protobuf import field_mask_pb2 as _field_mask_pb2
from google.protobuf import struct_pb2 as _struct_pb2
from google.protobuf import timestamp_pb2 as _timestamp_pb2
from google.protobuf import wrappers_pb2 as _wrappers_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Colour(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    COLOUR_UNSPECIFIED: _ClassVar[Colour]
    COLOUR_RED: _ClassVar[Colour]
    COLOUR_BLUE: _ClassVar[Colour]
COLOUR_UNSPECIFIED: Colour
COLOUR_RED: Colour
COLOUR_BLUE: Colour

class Thing(_message.Message):
    __slots__ = ("name", "small_count", "big_count", "weight", "is_new", "data", "colour", "tags", "sizes", "inner", "parts", "made", "age", "mask", "maybe", "extra", "any", "word", "number")
    class SizesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    NAME_FIELD_NUMBER: _ClassVar[int]
    SMALL_COUNT_FIELD_NUMBER: _ClassVar[int]
    BIG_COUNT_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_FIELD_NUMBER: _ClassVar[int]
    IS_NEW_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    COLOUR_FIELD_NUMBER: _ClassVar[int]
    TAGS_FIELD_NUMBER: _ClassVar[int]
    SIZES_FIELD_NUMBER: _ClassVar[int]
    INNER_FIELD_NUMBER: _ClassVar[int]
    PARTS_FIELD_NUMBER: _ClassVar[int]
    MADE_FIELD_NUMBER: _ClassVar[int]
    AGE_FIELD_NUMBER: _ClassVar[int]
    MASK_FIELD_NUMBER: _ClassVar[int]
    MAYBE_FIELD_NUMBER: _ClassVar[int]
    EXTRA_FIELD_NUMBER: _ClassVar[int]
    ANY_FIELD_NUMBER: _ClassVar[int]
    WORD_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    name: str
    small_count: int
    big_count: int
    weight: float
    is_new: bool
    data: bytes
    colour: Colour
    tags: _containers.RepeatedScalarFieldContainer[str]
    sizes: _containers.ScalarMap[str, int]
    inner: Thing
    parts: _containers.RepeatedCompositeFieldContainer[Thing]
    made: _timestamp_pb2.Timestamp
    age: _duration_pb2.Duration
    mask: _field_mask_pb2.FieldMask
    maybe: _wrappers_pb2.BoolValue
    extra: _struct_pb2.Struct
    any: _any_pb2.Any
    word: str
    number: int
    def __init__(self, name: _Optional[str] = ..., small_count: _Optional[int] = ..., big_count: _Optional[int] = ..., weight: _Optional[float] = ..., is_new: _Optional[bool] = ..., data: _Optional[bytes] = ..., colour: _Optional[_Union[Colour, str]] = ..., tags: _Optional[_Iterable[str]] = ..., sizes: _Optional[_Mapping[str, int]] = ..., inner: _Optional[_Union[Thing, _Mapping]] = ..., parts: _Optional[_Iterable[_Union[Thing, _Mapping]]] = ..., made: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., age: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., mask: _Optional[_Union[_field_mask_pb2.FieldMask, _Mapping]] = ..., maybe: _Optional[_Union[_wrappers_pb2.BoolValue, _Mapping]] = ..., extra: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ..., any: _Optional[_Union[_any_pb2.Any, _Mapping]] = ..., word: _Optional[str] = ..., number: _Optional[int] = ...) -> None: ...

class GetRequest(_message.Message):
    __slots__ = ("name", "filter", "colours", "numbers", "since", "maybe", "thing")
    NAME_FIELD_NUMBER: _ClassVar[int]
    FILTER_FIELD_NUMBER: _ClassVar[int]
    COLOURS_FIELD_NUMBER: _ClassVar[int]
    NUMBERS_FIELD_NUMBER: _ClassVar[int]
    SINCE_FIELD_NUMBER: _ClassVar[int]
    MAYBE_FIELD_NUMBER: _ClassVar[int]
    THING_FIELD_NUMBER: _ClassVar[int]
    name: str
    filter: Filter
    colours: _containers.RepeatedScalarFieldContainer[Colour]
    numbers: _containers.RepeatedScalarFieldContainer[int]
    since: _timestamp_pb2.Timestamp
    maybe: _wrappers_pb2.BoolValue
    thing: Thing
    def __init__(self, name: _Optional[str] = ..., filter: _Optional[_Union[Filter, _Mapping]] = ..., colours: _Optional[_Iterable[_Union[Colour, str]]] = ..., numbers: _Optional[_Iterable[int]] = ..., since: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., maybe: _Optional[_Union[_wrappers_pb2.BoolValue, _Mapping]] = ..., thing: _Optional[_Union[Thing, _Mapping]] = ...) -> None: ...

class Filter(_message.Message):
    __slots__ = ("tag_name", "is_new", "data")
    TAG_NAME_FIELD_NUMBER: _ClassVar[int]
    IS_NEW_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    tag_name: str
    is_new: bool
    data: bytes
    def __init__(self, tag_name: _Optional[str] = ..., is_new: _Optional[bool] = ..., data: _Optional[bytes] = ...) -> None: ...

class ListRequest(_message.Message):
    __slots__ = ("count", "fail_code", "size_bytes")
    COUNT_FIELD_NUMBER: _ClassVar[int]
    FAIL_CODE_FIELD_NUMBER: _ClassVar[int]
    SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    count: int
    fail_code: int
    size_bytes: int
    def __init__(self, count: _Optional[int] = ..., fail_code: _Optional[int] = ..., size_bytes: _Optional[int] = ...) -> None: ...
