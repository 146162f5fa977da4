from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable
from typing import ClassVar as _ClassVar, Optional as _Optional

DESCRIPTOR: _descriptor.FileDescriptor

class ClassifyRequest(_message.Message):
    __slots__ = ("pixels",)
    PIXELS_FIELD_NUMBER: _ClassVar[int]
    pixels: bytes
    def __init__(self, pixels: _Optional[bytes] = ...) -> None: ...

class ClassifyReply(_message.Message):
    __slots__ = ("label", "probabilities", "replica_id", "batch_size")
    LABEL_FIELD_NUMBER: _ClassVar[int]
    PROBABILITIES_FIELD_NUMBER: _ClassVar[int]
    REPLICA_ID_FIELD_NUMBER: _ClassVar[int]
    BATCH_SIZE_FIELD_NUMBER: _ClassVar[int]
    label: int
    probabilities: _containers.RepeatedScalarFieldContainer[float]
    replica_id: str
    batch_size: int
    def __init__(self, label: _Optional[int] = ..., probabilities: _Optional[_Iterable[float]] = ..., replica_id: _Optional[str] = ..., batch_size: _Optional[int] = ...) -> None: ...
