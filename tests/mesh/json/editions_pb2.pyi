from google.api import annotations_pb2 as _annotations_pb2
from google.protobuf import any_pb2 as _any_pb2
from tests.mesh.json import edition_2024_pb2 as _edition_2024_pb2
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
CLOSED_ONE: Closed
CLOSED_TWO: Closed
EXTRA_FIELD_NUMBER: _ClassVar[int]
extra: _descriptor.FieldDescriptor
EXTRA_PARTS_FIELD_NUMBER: _ClassVar[int]
extra_parts: _descriptor.FieldDescriptor

class Needs(_message.Message):
    __slots__ = ("number",)
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    number: int
    def __init__(self, number: _Optional[int] = ...) -> None: ...

class Thing(_message.Message):
    __slots__ = ("name", "explicit", "implicit", "needs", "group", "prefixed", "groups", "things", "packed", "expanded", "closed", "closed_list", "any", "number", "word", "part", "plain")
    Extensions: _python_message._ExtensionDict
    class ThingsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: Thing
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[Thing, _Mapping]] = ...) -> None: ...
    class Part(_message.Message):
        __slots__ = ("text",)
        TEXT_FIELD_NUMBER: _ClassVar[int]
        text: str
        def __init__(self, text: _Optional[str] = ...) -> None: ...
    NAME_FIELD_NUMBER: _ClassVar[int]
    EXPLICIT_FIELD_NUMBER: _ClassVar[int]
    IMPLICIT_FIELD_NUMBER: _ClassVar[int]
    NEEDS_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    PREFIXED_FIELD_NUMBER: _ClassVar[int]
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    THINGS_FIELD_NUMBER: _ClassVar[int]
    PACKED_FIELD_NUMBER: _ClassVar[int]
    EXPANDED_FIELD_NUMBER: _ClassVar[int]
    CLOSED_FIELD_NUMBER: _ClassVar[int]
    CLOSED_LIST_FIELD_NUMBER: _ClassVar[int]
    ANY_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    WORD_FIELD_NUMBER: _ClassVar[int]
    PART_FIELD_NUMBER: _ClassVar[int]
    PLAIN_FIELD_NUMBER: _ClassVar[int]
    name: str
    explicit: int
    implicit: int
    needs: Needs
    group: Thing
    prefixed: Thing
    groups: _containers.RepeatedCompositeFieldContainer[Thing]
    things: _containers.MessageMap[str, Thing]
    packed: _containers.RepeatedScalarFieldContainer[int]
    expanded: _containers.RepeatedScalarFieldContainer[int]
    closed: Closed
    closed_list: _containers.RepeatedScalarFieldContainer[Closed]
    any: _any_pb2.Any
    number: int
    word: str
    part: Thing.Part
    plain: _edition_2024_pb2.Plain
    def __init__(self, name: _Optional[str] = ..., explicit: _Optional[int] = ..., implicit: _Optional[int] = ..., needs: _Optional[_Union[Needs, _Mapping]] = ..., group: _Optional[_Union[Thing, _Mapping]] = ..., prefixed: _Optional[_Union[Thing, _Mapping]] = ..., groups: _Optional[_Iterable[_Union[Thing, _Mapping]]] = ..., things: _Optional[_Mapping[str, Thing]] = ..., packed: _Optional[_Iterable[int]] = ..., expanded: _Optional[_Iterable[int]] = ..., closed: _Optional[_Union[Closed, str]] = ..., closed_list: _Optional[_Iterable[_Union[Closed, str]]] = ..., any: _Optional[_Union[_any_pb2.Any, _Mapping]] = ..., number: _Optional[int] = ..., word: _Optional[str] = ..., part: _Optional[_Union[Thing.Part, _Mapping]] = ..., plain: _Optional[_Union[_edition_2024_pb2.Plain, _Mapping]] = ...) -> None: ...
