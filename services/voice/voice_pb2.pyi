from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class DetectRequest(_message.Message):
    __slots__ = ("audio",)
    AUDIO_FIELD_NUMBER: _ClassVar[int]
    audio: bytes
    def __init__(self, audio: _Optional[bytes] = ...) -> None: ...

class Event(_message.Message):
    __slots__ = ("kind", "at_ms", "shared_by")
    class Kind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        KIND_UNSPECIFIED: _ClassVar[Event.Kind]
        KIND_SPEECH: _ClassVar[Event.Kind]
        KIND_SILENCE: _ClassVar[Event.Kind]
    KIND_UNSPECIFIED: Event.Kind
    KIND_SPEECH: Event.Kind
    KIND_SILENCE: Event.Kind
    KIND_FIELD_NUMBER: _ClassVar[int]
    AT_MS_FIELD_NUMBER: _ClassVar[int]
    SHARED_BY_FIELD_NUMBER: _ClassVar[int]
    kind: Event.Kind
    at_ms: int
    shared_by: int
    def __init__(self, kind: _Optional[_Union[Event.Kind, str]] = ..., at_ms: _Optional[int] = ..., shared_by: _Optional[int] = ...) -> None: ...
