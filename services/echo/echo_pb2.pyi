from google.protobuf import any_pb2 as _any_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class EchoRequest(_message.Message):
    __slots__ = ("payload",)
    PAYLOAD_FIELD_NUMBER: _ClassVar[int]
    payload: bytes
    def __init__(self, payload: _Optional[bytes] = ...) -> None: ...

class EchoReply(_message.Message):
    __slots__ = ("payload",)
    PAYLOAD_FIELD_NUMBER: _ClassVar[int]
    payload: bytes
    def __init__(self, payload: _Optional[bytes] = ...) -> None: ...

class StreamRequest(_message.Message):
    __slots__ = ("payload", "messages")
    PAYLOAD_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    payload: bytes
    messages: int
    def __init__(self, payload: _Optional[bytes] = ..., messages: _Optional[int] = ...) -> None: ...

class PerformRequest(_message.Message):
    __slots__ = ("payload", "response_bytes", "delay_s", "status", "raise_text", "return_wrong_type", "describe")
    PAYLOAD_FIELD_NUMBER: _ClassVar[int]
    RESPONSE_BYTES_FIELD_NUMBER: _ClassVar[int]
    DELAY_S_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    RAISE_TEXT_FIELD_NUMBER: _ClassVar[int]
    RETURN_WRONG_TYPE_FIELD_NUMBER: _ClassVar[int]
    DESCRIBE_FIELD_NUMBER: _ClassVar[int]
    payload: bytes
    response_bytes: int
    delay_s: float
    status: Status
    raise_text: str
    return_wrong_type: bool
    describe: bool
    def __init__(self, payload: _Optional[bytes] = ..., response_bytes: _Optional[int] = ..., delay_s: _Optional[float] = ..., status: _Optional[_Union[Status, _Mapping]] = ..., raise_text: _Optional[str] = ..., return_wrong_type: _Optional[bool] = ..., describe: _Optional[bool] = ...) -> None: ...

class PerformReply(_message.Message):
    __slots__ = ("payload", "facts")
    PAYLOAD_FIELD_NUMBER: _ClassVar[int]
    FACTS_FIELD_NUMBER: _ClassVar[int]
    payload: bytes
    facts: CallFacts
    def __init__(self, payload: _Optional[bytes] = ..., facts: _Optional[_Union[CallFacts, _Mapping]] = ...) -> None: ...

class Status(_message.Message):
    __slots__ = ("code", "message", "details")
    CODE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    DETAILS_FIELD_NUMBER: _ClassVar[int]
    code: int
    message: str
    details: _containers.RepeatedCompositeFieldContainer[_any_pb2.Any]
    def __init__(self, code: _Optional[int] = ..., message: _Optional[str] = ..., details: _Optional[_Iterable[_Union[_any_pb2.Any, _Mapping]]] = ...) -> None: ...

class CallFacts(_message.Message):
    __slots__ = ("replica_id", "pid", "peer", "time_remaining_s", "metadata")
    REPLICA_ID_FIELD_NUMBER: _ClassVar[int]
    PID_FIELD_NUMBER: _ClassVar[int]
    PEER_FIELD_NUMBER: _ClassVar[int]
    TIME_REMAINING_S_FIELD_NUMBER: _ClassVar[int]
    METADATA_FIELD_NUMBER: _ClassVar[int]
    replica_id: str
    pid: int
    peer: str
    time_remaining_s: float
    metadata: _containers.RepeatedCompositeFieldContainer[Metadatum]
    def __init__(self, replica_id: _Optional[str] = ..., pid: _Optional[int] = ..., peer: _Optional[str] = ..., time_remaining_s: _Optional[float] = ..., metadata: _Optional[_Iterable[_Union[Metadatum, _Mapping]]] = ...) -> None: ...

class Metadatum(_message.Message):
    __slots__ = ("key", "value")
    KEY_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    key: str
    value: bytes
    def __init__(self, key: _Optional[str] = ..., value: _Optional[bytes] = ...) -> None: ...

class PerformStreamRequest(_message.Message):
    __slots__ = ("messages", "each")
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    EACH_FIELD_NUMBER: _ClassVar[int]
    messages: int
    each: PerformRequest
    def __init__(self, messages: _Optional[int] = ..., each: _Optional[_Union[PerformRequest, _Mapping]] = ...) -> None: ...

class CollectReply(_message.Message):
    __slots__ = ("messages", "payload_bytes")
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_BYTES_FIELD_NUMBER: _ClassVar[int]
    messages: int
    payload_bytes: int
    def __init__(self, messages: _Optional[int] = ..., payload_bytes: _Optional[int] = ...) -> None: ...

class CountRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class CountReply(_message.Message):
    __slots__ = ("started", "succeeded", "failed", "cancelled", "replica_id")
    STARTED_FIELD_NUMBER: _ClassVar[int]
    SUCCEEDED_FIELD_NUMBER: _ClassVar[int]
    FAILED_FIELD_NUMBER: _ClassVar[int]
    CANCELLED_FIELD_NUMBER: _ClassVar[int]
    REPLICA_ID_FIELD_NUMBER: _ClassVar[int]
    started: int
    succeeded: int
    failed: int
    cancelled: int
    replica_id: str
    def __init__(self, started: _Optional[int] = ..., succeeded: _Optional[int] = ..., failed: _Optional[int] = ..., cancelled: _Optional[int] = ..., replica_id: _Optional[str] = ...) -> None: ...

class ForkRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ForkReply(_message.Message):
    __slots__ = ("listening", "runtime_error_type", "runtime_error")
    LISTENING_FIELD_NUMBER: _ClassVar[int]
    RUNTIME_ERROR_TYPE_FIELD_NUMBER: _ClassVar[int]
    RUNTIME_ERROR_FIELD_NUMBER: _ClassVar[int]
    listening: _containers.RepeatedScalarFieldContainer[str]
    runtime_error_type: str
    runtime_error: str
    def __init__(self, listening: _Optional[_Iterable[str]] = ..., runtime_error_type: _Optional[str] = ..., runtime_error: _Optional[str] = ...) -> None: ...
