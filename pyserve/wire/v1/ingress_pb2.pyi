from pyserve.wire.v1 import control_pb2 as _control_pb2
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class IngressMessage(_message.Message):
    __slots__ = ("answers", "status")
    ANSWERS_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    answers: int
    status: _control_pb2.IngressStatus
    def __init__(self, answers: _Optional[int] = ..., status: _Optional[_Union[_control_pb2.IngressStatus, _Mapping]] = ...) -> None: ...

class IngressCommand(_message.Message):
    __slots__ = ("number", "look", "show", "settings", "drain")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    LOOK_FIELD_NUMBER: _ClassVar[int]
    SHOW_FIELD_NUMBER: _ClassVar[int]
    SETTINGS_FIELD_NUMBER: _ClassVar[int]
    DRAIN_FIELD_NUMBER: _ClassVar[int]
    number: int
    look: Look
    show: Show
    settings: IngressSettings
    drain: DrainIngress
    def __init__(self, number: _Optional[int] = ..., look: _Optional[_Union[Look, _Mapping]] = ..., show: _Optional[_Union[Show, _Mapping]] = ..., settings: _Optional[_Union[IngressSettings, _Mapping]] = ..., drain: _Optional[_Union[DrainIngress, _Mapping]] = ...) -> None: ...

class Look(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Show(_message.Message):
    __slots__ = ("version",)
    VERSION_FIELD_NUMBER: _ClassVar[int]
    version: int
    def __init__(self, version: _Optional[int] = ...) -> None: ...

class IngressSettings(_message.Message):
    __slots__ = ("request_timeout_s",)
    REQUEST_TIMEOUT_S_FIELD_NUMBER: _ClassVar[int]
    request_timeout_s: float
    def __init__(self, request_timeout_s: _Optional[float] = ...) -> None: ...

class DrainIngress(_message.Message):
    __slots__ = ("grace_s",)
    GRACE_S_FIELD_NUMBER: _ClassVar[int]
    grace_s: float
    def __init__(self, grace_s: _Optional[float] = ...) -> None: ...
