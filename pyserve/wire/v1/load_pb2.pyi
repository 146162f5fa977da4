from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class LoadRequest(_message.Message):
    __slots__ = ("ask", "when_idle")
    ASK_FIELD_NUMBER: _ClassVar[int]
    WHEN_IDLE_FIELD_NUMBER: _ClassVar[int]
    ask: bool
    when_idle: bool
    def __init__(self, ask: _Optional[bool] = ..., when_idle: _Optional[bool] = ...) -> None: ...

class LoadReport(_message.Message):
    __slots__ = ("sequence", "in_flight", "limit", "models", "leases")
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    IN_FLIGHT_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    MODELS_FIELD_NUMBER: _ClassVar[int]
    LEASES_FIELD_NUMBER: _ClassVar[int]
    sequence: int
    in_flight: int
    limit: int
    models: ModelList
    leases: int
    def __init__(self, sequence: _Optional[int] = ..., in_flight: _Optional[int] = ..., limit: _Optional[int] = ..., models: _Optional[_Union[ModelList, _Mapping]] = ..., leases: _Optional[int] = ...) -> None: ...

class ModelList(_message.Message):
    __slots__ = ("model_ids",)
    MODEL_IDS_FIELD_NUMBER: _ClassVar[int]
    model_ids: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, model_ids: _Optional[_Iterable[str]] = ...) -> None: ...
