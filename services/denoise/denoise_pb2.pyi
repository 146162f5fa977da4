from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Optional as _Optional

DESCRIPTOR: _descriptor.FileDescriptor

class SampleRequest(_message.Message):
    __slots__ = ("digit", "steps", "side", "seed")
    DIGIT_FIELD_NUMBER: _ClassVar[int]
    STEPS_FIELD_NUMBER: _ClassVar[int]
    SIDE_FIELD_NUMBER: _ClassVar[int]
    SEED_FIELD_NUMBER: _ClassVar[int]
    digit: int
    steps: int
    side: int
    seed: int
    def __init__(self, digit: _Optional[int] = ..., steps: _Optional[int] = ..., side: _Optional[int] = ..., seed: _Optional[int] = ...) -> None: ...

class Image(_message.Message):
    __slots__ = ("pixels", "side", "left", "shared_by")
    PIXELS_FIELD_NUMBER: _ClassVar[int]
    SIDE_FIELD_NUMBER: _ClassVar[int]
    LEFT_FIELD_NUMBER: _ClassVar[int]
    SHARED_BY_FIELD_NUMBER: _ClassVar[int]
    pixels: bytes
    side: int
    left: int
    shared_by: int
    def __init__(self, pixels: _Optional[bytes] = ..., side: _Optional[int] = ..., left: _Optional[int] = ..., shared_by: _Optional[int] = ...) -> None: ...
