from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Optional as _Optional

DESCRIPTOR: _descriptor.FileDescriptor

class FruitAmounts(_message.Message):
    __slots__ = ("apple", "orange")
    APPLE_FIELD_NUMBER: _ClassVar[int]
    ORANGE_FIELD_NUMBER: _ClassVar[int]
    apple: int
    orange: int
    def __init__(self, apple: _Optional[int] = ..., orange: _Optional[int] = ...) -> None: ...

class FruitCosts(_message.Message):
    __slots__ = ("costs",)
    COSTS_FIELD_NUMBER: _ClassVar[int]
    costs: float
    def __init__(self, costs: _Optional[float] = ...) -> None: ...

class ModelName(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...
