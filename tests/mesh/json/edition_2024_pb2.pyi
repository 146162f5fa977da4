from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Plain(_message.Message):
    __slots__ = ("name", "inner", "explicit", "number", "word")
    NAME_FIELD_NUMBER: _ClassVar[int]
    INNER_FIELD_NUMBER: _ClassVar[int]
    EXPLICIT_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    WORD_FIELD_NUMBER: _ClassVar[int]
    name: str
    inner: Plain
    explicit: int
    number: int
    word: str
    def __init__(self, name: _Optional[str] = ..., inner: _Optional[_Union[Plain, _Mapping]] = ..., explicit: _Optional[int] = ..., number: _Optional[int] = ..., word: _Optional[str] = ...) -> None: ...
