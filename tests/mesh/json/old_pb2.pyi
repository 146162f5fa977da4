from google.api import annotations_pb2 as _annotations_pb2
from google.api import httpbody_pb2 as _httpbody_pb2
from google.protobuf import any_pb2 as _any_pb2
from google.protobuf import wrappers_pb2 as _wrappers_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf.internal import python_message as _python_message
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Closed(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    CLOSED_ONE: _ClassVar[Closed]
    CLOSED_TWO: _ClassVar[Closed]

class Value(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    VALUE_NONE: _ClassVar[Value]
    VALUE_ONE: _ClassVar[Value]
CLOSED_ONE: Closed
CLOSED_TWO: Closed
VALUE_NONE: Value
VALUE_ONE: Value

class Set(_message.Message):
    __slots__ = ()
    Extensions: _python_message._ExtensionDict
    def __init__(self) -> None: ...

class Item(_message.Message):
    __slots__ = ("text", "inner")
    ITEM_FIELD_NUMBER: _ClassVar[int]
    item: _descriptor.FieldDescriptor
    TEXT_FIELD_NUMBER: _ClassVar[int]
    INNER_FIELD_NUMBER: _ClassVar[int]
    text: str
    inner: Item
    def __init__(self, text: _Optional[str] = ..., inner: _Optional[_Union[Item, _Mapping]] = ...) -> None: ...

class Thing(_message.Message):
    __slots__ = ("name", "closed", "closed_list", "packed", "values", "set", "any", "labels", "items", "one", "word")
    Extensions: _python_message._ExtensionDict
    class ValuesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: Value
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[Value, str]] = ...) -> None: ...
    class LabelsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    NAME_FIELD_NUMBER: _ClassVar[int]
    CLOSED_FIELD_NUMBER: _ClassVar[int]
    CLOSED_LIST_FIELD_NUMBER: _ClassVar[int]
    PACKED_FIELD_NUMBER: _ClassVar[int]
    VALUES_FIELD_NUMBER: _ClassVar[int]
    SET_FIELD_NUMBER: _ClassVar[int]
    ANY_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    ONE_FIELD_NUMBER: _ClassVar[int]
    WORD_FIELD_NUMBER: _ClassVar[int]
    name: str
    closed: Closed
    closed_list: _containers.RepeatedScalarFieldContainer[Closed]
    packed: _containers.RepeatedScalarFieldContainer[Closed]
    values: _containers.ScalarMap[str, Value]
    set: Set
    any: _any_pb2.Any
    labels: _containers.ScalarMap[str, str]
    items: _containers.RepeatedCompositeFieldContainer[Item]
    one: Closed
    word: str
    def __init__(self, name: _Optional[str] = ..., closed: _Optional[_Union[Closed, str]] = ..., closed_list: _Optional[_Iterable[_Union[Closed, str]]] = ..., packed: _Optional[_Iterable[_Union[Closed, str]]] = ..., values: _Optional[_Mapping[str, Value]] = ..., set: _Optional[_Union[Set, _Mapping]] = ..., any: _Optional[_Union[_any_pb2.Any, _Mapping]] = ..., labels: _Optional[_Mapping[str, str]] = ..., items: _Optional[_Iterable[_Union[Item, _Mapping]]] = ..., one: _Optional[_Union[Closed, str]] = ..., word: _Optional[str] = ...) -> None: ...

class File(_message.Message):
    __slots__ = ("name", "body")
    NAME_FIELD_NUMBER: _ClassVar[int]
    BODY_FIELD_NUMBER: _ClassVar[int]
    name: str
    body: _httpbody_pb2.HttpBody
    def __init__(self, name: _Optional[str] = ..., body: _Optional[_Union[_httpbody_pb2.HttpBody, _Mapping]] = ...) -> None: ...
