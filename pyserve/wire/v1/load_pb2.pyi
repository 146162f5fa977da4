from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class LoadRequest(_message.Message):
    __slots__ = ("ask", "when_idle", "caches")
    ASK_FIELD_NUMBER: _ClassVar[int]
    WHEN_IDLE_FIELD_NUMBER: _ClassVar[int]
    CACHES_FIELD_NUMBER: _ClassVar[int]
    ask: bool
    when_idle: bool
    caches: bool
    def __init__(self, ask: _Optional[bool] = ..., when_idle: _Optional[bool] = ..., caches: _Optional[bool] = ...) -> None: ...

class LoadReport(_message.Message):
    __slots__ = ("sequence", "in_flight", "limit", "models", "leases", "costs", "cache")
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    IN_FLIGHT_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    MODELS_FIELD_NUMBER: _ClassVar[int]
    LEASES_FIELD_NUMBER: _ClassVar[int]
    COSTS_FIELD_NUMBER: _ClassVar[int]
    CACHE_FIELD_NUMBER: _ClassVar[int]
    sequence: int
    in_flight: int
    limit: int
    models: ModelList
    leases: int
    costs: CostReport
    cache: CacheReport
    def __init__(self, sequence: _Optional[int] = ..., in_flight: _Optional[int] = ..., limit: _Optional[int] = ..., models: _Optional[_Union[ModelList, _Mapping]] = ..., leases: _Optional[int] = ..., costs: _Optional[_Union[CostReport, _Mapping]] = ..., cache: _Optional[_Union[CacheReport, _Mapping]] = ...) -> None: ...

class CostReport(_message.Message):
    __slots__ = ("number", "budget", "running", "waiting", "step_us", "wait_us", "calls", "places")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    BUDGET_FIELD_NUMBER: _ClassVar[int]
    RUNNING_FIELD_NUMBER: _ClassVar[int]
    WAITING_FIELD_NUMBER: _ClassVar[int]
    STEP_US_FIELD_NUMBER: _ClassVar[int]
    WAIT_US_FIELD_NUMBER: _ClassVar[int]
    CALLS_FIELD_NUMBER: _ClassVar[int]
    PLACES_FIELD_NUMBER: _ClassVar[int]
    number: int
    budget: float
    running: float
    waiting: float
    step_us: int
    wait_us: int
    calls: int
    places: int
    def __init__(self, number: _Optional[int] = ..., budget: _Optional[float] = ..., running: _Optional[float] = ..., waiting: _Optional[float] = ..., step_us: _Optional[int] = ..., wait_us: _Optional[int] = ..., calls: _Optional[int] = ..., places: _Optional[int] = ...) -> None: ...

class CacheReport(_message.Message):
    __slots__ = ("number", "is_whole", "stored", "parents", "removed")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    IS_WHOLE_FIELD_NUMBER: _ClassVar[int]
    STORED_FIELD_NUMBER: _ClassVar[int]
    PARENTS_FIELD_NUMBER: _ClassVar[int]
    REMOVED_FIELD_NUMBER: _ClassVar[int]
    number: int
    is_whole: bool
    stored: _containers.RepeatedScalarFieldContainer[int]
    parents: _containers.RepeatedScalarFieldContainer[int]
    removed: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, number: _Optional[int] = ..., is_whole: _Optional[bool] = ..., stored: _Optional[_Iterable[int]] = ..., parents: _Optional[_Iterable[int]] = ..., removed: _Optional[_Iterable[int]] = ...) -> None: ...

class ModelList(_message.Message):
    __slots__ = ("model_ids",)
    MODEL_IDS_FIELD_NUMBER: _ClassVar[int]
    model_ids: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, model_ids: _Optional[_Iterable[str]] = ...) -> None: ...
