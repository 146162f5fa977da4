from pyserve.wire.v1 import mesh_pb2 as _mesh_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class DeployRequest(_message.Message):
    __slots__ = ("application", "deployments", "ingress_deployment", "route_prefix", "route_prefix_is_default", "run", "declaration_json", "external_scaler_enabled", "autoscaling_policy_json")
    APPLICATION_FIELD_NUMBER: _ClassVar[int]
    DEPLOYMENTS_FIELD_NUMBER: _ClassVar[int]
    INGRESS_DEPLOYMENT_FIELD_NUMBER: _ClassVar[int]
    ROUTE_PREFIX_FIELD_NUMBER: _ClassVar[int]
    ROUTE_PREFIX_IS_DEFAULT_FIELD_NUMBER: _ClassVar[int]
    RUN_FIELD_NUMBER: _ClassVar[int]
    DECLARATION_JSON_FIELD_NUMBER: _ClassVar[int]
    EXTERNAL_SCALER_ENABLED_FIELD_NUMBER: _ClassVar[int]
    AUTOSCALING_POLICY_JSON_FIELD_NUMBER: _ClassVar[int]
    application: str
    deployments: _containers.RepeatedCompositeFieldContainer[_mesh_pb2.DeploymentSpec]
    ingress_deployment: str
    route_prefix: str
    route_prefix_is_default: bool
    run: Run
    declaration_json: str
    external_scaler_enabled: bool
    autoscaling_policy_json: str
    def __init__(self, application: _Optional[str] = ..., deployments: _Optional[_Iterable[_Union[_mesh_pb2.DeploymentSpec, _Mapping]]] = ..., ingress_deployment: _Optional[str] = ..., route_prefix: _Optional[str] = ..., route_prefix_is_default: _Optional[bool] = ..., run: _Optional[_Union[Run, _Mapping]] = ..., declaration_json: _Optional[str] = ..., external_scaler_enabled: _Optional[bool] = ..., autoscaling_policy_json: _Optional[str] = ...) -> None: ...

class ApplyRequest(_message.Message):
    __slots__ = ("applications", "run", "target_capacity")
    APPLICATIONS_FIELD_NUMBER: _ClassVar[int]
    RUN_FIELD_NUMBER: _ClassVar[int]
    TARGET_CAPACITY_FIELD_NUMBER: _ClassVar[int]
    applications: _containers.RepeatedCompositeFieldContainer[DeployRequest]
    run: Run
    target_capacity: float
    def __init__(self, applications: _Optional[_Iterable[_Union[DeployRequest, _Mapping]]] = ..., run: _Optional[_Union[Run, _Mapping]] = ..., target_capacity: _Optional[float] = ...) -> None: ...

class ApplyEvent(_message.Message):
    __slots__ = ("application", "event")
    APPLICATION_FIELD_NUMBER: _ClassVar[int]
    EVENT_FIELD_NUMBER: _ClassVar[int]
    application: str
    event: DeployEvent
    def __init__(self, application: _Optional[str] = ..., event: _Optional[_Union[DeployEvent, _Mapping]] = ...) -> None: ...

class ConfigRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ConfigReply(_message.Message):
    __slots__ = ("declarations", "ingress_variables", "target_capacity")
    class IngressVariablesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    DECLARATIONS_FIELD_NUMBER: _ClassVar[int]
    INGRESS_VARIABLES_FIELD_NUMBER: _ClassVar[int]
    TARGET_CAPACITY_FIELD_NUMBER: _ClassVar[int]
    declarations: _containers.RepeatedCompositeFieldContainer[Declaration]
    ingress_variables: _containers.ScalarMap[str, str]
    target_capacity: float
    def __init__(self, declarations: _Optional[_Iterable[_Union[Declaration, _Mapping]]] = ..., ingress_variables: _Optional[_Mapping[str, str]] = ..., target_capacity: _Optional[float] = ...) -> None: ...

class Declaration(_message.Message):
    __slots__ = ("application", "json")
    APPLICATION_FIELD_NUMBER: _ClassVar[int]
    JSON_FIELD_NUMBER: _ClassVar[int]
    application: str
    json: str
    def __init__(self, application: _Optional[str] = ..., json: _Optional[str] = ...) -> None: ...

class LogsRequest(_message.Message):
    __slots__ = ("application", "deployment", "follow", "lines_max", "replica_id")
    APPLICATION_FIELD_NUMBER: _ClassVar[int]
    DEPLOYMENT_FIELD_NUMBER: _ClassVar[int]
    FOLLOW_FIELD_NUMBER: _ClassVar[int]
    LINES_MAX_FIELD_NUMBER: _ClassVar[int]
    REPLICA_ID_FIELD_NUMBER: _ClassVar[int]
    application: str
    deployment: str
    follow: bool
    lines_max: int
    replica_id: str
    def __init__(self, application: _Optional[str] = ..., deployment: _Optional[str] = ..., follow: _Optional[bool] = ..., lines_max: _Optional[int] = ..., replica_id: _Optional[str] = ...) -> None: ...

class LogLine(_message.Message):
    __slots__ = ("replica_id", "line")
    REPLICA_ID_FIELD_NUMBER: _ClassVar[int]
    LINE_FIELD_NUMBER: _ClassVar[int]
    replica_id: str
    line: str
    def __init__(self, replica_id: _Optional[str] = ..., line: _Optional[str] = ...) -> None: ...

class Run(_message.Message):
    __slots__ = ("id", "pid")
    ID_FIELD_NUMBER: _ClassVar[int]
    PID_FIELD_NUMBER: _ClassVar[int]
    id: str
    pid: int
    def __init__(self, id: _Optional[str] = ..., pid: _Optional[int] = ...) -> None: ...

class DeployEvent(_message.Message):
    __slots__ = ("progress", "deployed", "failed", "notice")
    PROGRESS_FIELD_NUMBER: _ClassVar[int]
    DEPLOYED_FIELD_NUMBER: _ClassVar[int]
    FAILED_FIELD_NUMBER: _ClassVar[int]
    NOTICE_FIELD_NUMBER: _ClassVar[int]
    progress: Progress
    deployed: Deployed
    failed: DeployFailed
    notice: str
    def __init__(self, progress: _Optional[_Union[Progress, _Mapping]] = ..., deployed: _Optional[_Union[Deployed, _Mapping]] = ..., failed: _Optional[_Union[DeployFailed, _Mapping]] = ..., notice: _Optional[str] = ...) -> None: ...

class Progress(_message.Message):
    __slots__ = ("deployment", "ready", "wanted", "note")
    DEPLOYMENT_FIELD_NUMBER: _ClassVar[int]
    READY_FIELD_NUMBER: _ClassVar[int]
    WANTED_FIELD_NUMBER: _ClassVar[int]
    NOTE_FIELD_NUMBER: _ClassVar[int]
    deployment: str
    ready: int
    wanted: int
    note: str
    def __init__(self, deployment: _Optional[str] = ..., ready: _Optional[int] = ..., wanted: _Optional[int] = ..., note: _Optional[str] = ...) -> None: ...

class Deployed(_message.Message):
    __slots__ = ("addresses", "view_version", "unchanged")
    ADDRESSES_FIELD_NUMBER: _ClassVar[int]
    VIEW_VERSION_FIELD_NUMBER: _ClassVar[int]
    UNCHANGED_FIELD_NUMBER: _ClassVar[int]
    addresses: _containers.RepeatedScalarFieldContainer[str]
    view_version: int
    unchanged: bool
    def __init__(self, addresses: _Optional[_Iterable[str]] = ..., view_version: _Optional[int] = ..., unchanged: _Optional[bool] = ...) -> None: ...

class DeployFailed(_message.Message):
    __slots__ = ("deployment", "summary", "traceback")
    DEPLOYMENT_FIELD_NUMBER: _ClassVar[int]
    SUMMARY_FIELD_NUMBER: _ClassVar[int]
    TRACEBACK_FIELD_NUMBER: _ClassVar[int]
    deployment: str
    summary: str
    traceback: str
    def __init__(self, deployment: _Optional[str] = ..., summary: _Optional[str] = ..., traceback: _Optional[str] = ...) -> None: ...

class StatusRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class StatusReply(_message.Message):
    __slots__ = ("version", "addresses", "applications", "controller_pid", "ingress", "development", "notices", "ingresses", "target_capacity", "admin", "now", "drain_left_s")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    ADDRESSES_FIELD_NUMBER: _ClassVar[int]
    APPLICATIONS_FIELD_NUMBER: _ClassVar[int]
    CONTROLLER_PID_FIELD_NUMBER: _ClassVar[int]
    INGRESS_FIELD_NUMBER: _ClassVar[int]
    DEVELOPMENT_FIELD_NUMBER: _ClassVar[int]
    NOTICES_FIELD_NUMBER: _ClassVar[int]
    INGRESSES_FIELD_NUMBER: _ClassVar[int]
    TARGET_CAPACITY_FIELD_NUMBER: _ClassVar[int]
    ADMIN_FIELD_NUMBER: _ClassVar[int]
    NOW_FIELD_NUMBER: _ClassVar[int]
    DRAIN_LEFT_S_FIELD_NUMBER: _ClassVar[int]
    version: str
    addresses: _containers.RepeatedScalarFieldContainer[str]
    applications: _containers.RepeatedCompositeFieldContainer[ApplicationStatus]
    controller_pid: int
    ingress: IngressStatus
    development: bool
    notices: _containers.RepeatedScalarFieldContainer[str]
    ingresses: _containers.RepeatedCompositeFieldContainer[IngressStatus]
    target_capacity: float
    admin: str
    now: float
    drain_left_s: float
    def __init__(self, version: _Optional[str] = ..., addresses: _Optional[_Iterable[str]] = ..., applications: _Optional[_Iterable[_Union[ApplicationStatus, _Mapping]]] = ..., controller_pid: _Optional[int] = ..., ingress: _Optional[_Union[IngressStatus, _Mapping]] = ..., development: _Optional[bool] = ..., notices: _Optional[_Iterable[str]] = ..., ingresses: _Optional[_Iterable[_Union[IngressStatus, _Mapping]]] = ..., target_capacity: _Optional[float] = ..., admin: _Optional[str] = ..., now: _Optional[float] = ..., drain_left_s: _Optional[float] = ...) -> None: ...

class IngressStatus(_message.Message):
    __slots__ = ("in_flight", "parked", "in_flight_of_replica", "counts", "speaks_tls", "node", "is_draining", "deployments", "uptime_s", "limits", "state", "message", "since", "id", "pid", "version", "addresses", "admin")
    class InFlightOfReplicaEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    class CountsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    class LimitsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: float
        def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...
    IN_FLIGHT_FIELD_NUMBER: _ClassVar[int]
    PARKED_FIELD_NUMBER: _ClassVar[int]
    IN_FLIGHT_OF_REPLICA_FIELD_NUMBER: _ClassVar[int]
    COUNTS_FIELD_NUMBER: _ClassVar[int]
    SPEAKS_TLS_FIELD_NUMBER: _ClassVar[int]
    NODE_FIELD_NUMBER: _ClassVar[int]
    IS_DRAINING_FIELD_NUMBER: _ClassVar[int]
    DEPLOYMENTS_FIELD_NUMBER: _ClassVar[int]
    UPTIME_S_FIELD_NUMBER: _ClassVar[int]
    LIMITS_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    SINCE_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    PID_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    ADDRESSES_FIELD_NUMBER: _ClassVar[int]
    ADMIN_FIELD_NUMBER: _ClassVar[int]
    in_flight: int
    parked: int
    in_flight_of_replica: _containers.ScalarMap[str, int]
    counts: _containers.ScalarMap[str, int]
    speaks_tls: bool
    node: str
    is_draining: bool
    deployments: _containers.RepeatedCompositeFieldContainer[RoutedDeployment]
    uptime_s: float
    limits: _containers.ScalarMap[str, float]
    state: str
    message: str
    since: float
    id: str
    pid: int
    version: str
    addresses: _containers.RepeatedScalarFieldContainer[str]
    admin: str
    def __init__(self, in_flight: _Optional[int] = ..., parked: _Optional[int] = ..., in_flight_of_replica: _Optional[_Mapping[str, int]] = ..., counts: _Optional[_Mapping[str, int]] = ..., speaks_tls: _Optional[bool] = ..., node: _Optional[str] = ..., is_draining: _Optional[bool] = ..., deployments: _Optional[_Iterable[_Union[RoutedDeployment, _Mapping]]] = ..., uptime_s: _Optional[float] = ..., limits: _Optional[_Mapping[str, float]] = ..., state: _Optional[str] = ..., message: _Optional[str] = ..., since: _Optional[float] = ..., id: _Optional[str] = ..., pid: _Optional[int] = ..., version: _Optional[str] = ..., addresses: _Optional[_Iterable[str]] = ..., admin: _Optional[str] = ...) -> None: ...

class RoutedDeployment(_message.Message):
    __slots__ = ("key", "in_flight", "parked", "counts")
    class CountsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    KEY_FIELD_NUMBER: _ClassVar[int]
    IN_FLIGHT_FIELD_NUMBER: _ClassVar[int]
    PARKED_FIELD_NUMBER: _ClassVar[int]
    COUNTS_FIELD_NUMBER: _ClassVar[int]
    key: _mesh_pb2.DeploymentKey
    in_flight: int
    parked: int
    counts: _containers.ScalarMap[str, int]
    def __init__(self, key: _Optional[_Union[_mesh_pb2.DeploymentKey, _Mapping]] = ..., in_flight: _Optional[int] = ..., parked: _Optional[int] = ..., counts: _Optional[_Mapping[str, int]] = ...) -> None: ...

class ApplicationStatus(_message.Message):
    __slots__ = ("name", "route_prefix", "deployments", "ingress_deployment", "state", "message", "deployed_at", "reason", "since", "target_capacity")
    NAME_FIELD_NUMBER: _ClassVar[int]
    ROUTE_PREFIX_FIELD_NUMBER: _ClassVar[int]
    DEPLOYMENTS_FIELD_NUMBER: _ClassVar[int]
    INGRESS_DEPLOYMENT_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    DEPLOYED_AT_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    SINCE_FIELD_NUMBER: _ClassVar[int]
    TARGET_CAPACITY_FIELD_NUMBER: _ClassVar[int]
    name: str
    route_prefix: str
    deployments: _containers.RepeatedCompositeFieldContainer[DeploymentStatus]
    ingress_deployment: str
    state: str
    message: str
    deployed_at: float
    reason: str
    since: float
    target_capacity: float
    def __init__(self, name: _Optional[str] = ..., route_prefix: _Optional[str] = ..., deployments: _Optional[_Iterable[_Union[DeploymentStatus, _Mapping]]] = ..., ingress_deployment: _Optional[str] = ..., state: _Optional[str] = ..., message: _Optional[str] = ..., deployed_at: _Optional[float] = ..., reason: _Optional[str] = ..., since: _Optional[float] = ..., target_capacity: _Optional[float] = ...) -> None: ...

class DeploymentStatus(_message.Message):
    __slots__ = ("name", "state", "message", "wanted", "replicas", "services", "reason", "since", "scaling", "ended", "trigger")
    NAME_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    WANTED_FIELD_NUMBER: _ClassVar[int]
    REPLICAS_FIELD_NUMBER: _ClassVar[int]
    SERVICES_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    SINCE_FIELD_NUMBER: _ClassVar[int]
    SCALING_FIELD_NUMBER: _ClassVar[int]
    ENDED_FIELD_NUMBER: _ClassVar[int]
    TRIGGER_FIELD_NUMBER: _ClassVar[int]
    name: str
    state: str
    message: str
    wanted: int
    replicas: _containers.RepeatedCompositeFieldContainer[ReplicaStatus]
    services: _containers.RepeatedScalarFieldContainer[str]
    reason: str
    since: float
    scaling: Scaling
    ended: _containers.RepeatedCompositeFieldContainer[EndedReplica]
    trigger: str
    def __init__(self, name: _Optional[str] = ..., state: _Optional[str] = ..., message: _Optional[str] = ..., wanted: _Optional[int] = ..., replicas: _Optional[_Iterable[_Union[ReplicaStatus, _Mapping]]] = ..., services: _Optional[_Iterable[str]] = ..., reason: _Optional[str] = ..., since: _Optional[float] = ..., scaling: _Optional[_Union[Scaling, _Mapping]] = ..., ended: _Optional[_Iterable[_Union[EndedReplica, _Mapping]]] = ..., trigger: _Optional[str] = ...) -> None: ...

class EndedReplica(_message.Message):
    __slots__ = ("replica_id", "ended_at", "summary", "lines")
    REPLICA_ID_FIELD_NUMBER: _ClassVar[int]
    ENDED_AT_FIELD_NUMBER: _ClassVar[int]
    SUMMARY_FIELD_NUMBER: _ClassVar[int]
    LINES_FIELD_NUMBER: _ClassVar[int]
    replica_id: str
    ended_at: float
    summary: str
    lines: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, replica_id: _Optional[str] = ..., ended_at: _Optional[float] = ..., summary: _Optional[str] = ..., lines: _Optional[_Iterable[str]] = ...) -> None: ...

class Scaling(_message.Message):
    __slots__ = ("target", "reason", "since", "pending", "min_replicas", "max_replicas", "is_advisory", "ready_after_s", "decisions")
    TARGET_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    SINCE_FIELD_NUMBER: _ClassVar[int]
    PENDING_FIELD_NUMBER: _ClassVar[int]
    MIN_REPLICAS_FIELD_NUMBER: _ClassVar[int]
    MAX_REPLICAS_FIELD_NUMBER: _ClassVar[int]
    IS_ADVISORY_FIELD_NUMBER: _ClassVar[int]
    READY_AFTER_S_FIELD_NUMBER: _ClassVar[int]
    DECISIONS_FIELD_NUMBER: _ClassVar[int]
    target: int
    reason: str
    since: float
    pending: int
    min_replicas: int
    max_replicas: int
    is_advisory: bool
    ready_after_s: float
    decisions: _containers.RepeatedCompositeFieldContainer[ScalingDecision]
    def __init__(self, target: _Optional[int] = ..., reason: _Optional[str] = ..., since: _Optional[float] = ..., pending: _Optional[int] = ..., min_replicas: _Optional[int] = ..., max_replicas: _Optional[int] = ..., is_advisory: _Optional[bool] = ..., ready_after_s: _Optional[float] = ..., decisions: _Optional[_Iterable[_Union[ScalingDecision, _Mapping]]] = ...) -> None: ...

class ScalingDecision(_message.Message):
    __slots__ = ("at", "before", "after", "reason")
    AT_FIELD_NUMBER: _ClassVar[int]
    BEFORE_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    at: float
    before: int
    after: int
    reason: str
    def __init__(self, at: _Optional[float] = ..., before: _Optional[int] = ..., after: _Optional[int] = ..., reason: _Optional[str] = ...) -> None: ...

class ReplicaStatus(_message.Message):
    __slots__ = ("replica_id", "state", "pid", "node", "endpoints", "admin", "version", "clock_ahead_s", "costs")
    REPLICA_ID_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    PID_FIELD_NUMBER: _ClassVar[int]
    NODE_FIELD_NUMBER: _ClassVar[int]
    ENDPOINTS_FIELD_NUMBER: _ClassVar[int]
    ADMIN_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    CLOCK_AHEAD_S_FIELD_NUMBER: _ClassVar[int]
    COSTS_FIELD_NUMBER: _ClassVar[int]
    replica_id: str
    state: str
    pid: int
    node: str
    endpoints: _mesh_pb2.Endpoints
    admin: str
    version: str
    clock_ahead_s: float
    costs: _mesh_pb2.StepCosts
    def __init__(self, replica_id: _Optional[str] = ..., state: _Optional[str] = ..., pid: _Optional[int] = ..., node: _Optional[str] = ..., endpoints: _Optional[_Union[_mesh_pb2.Endpoints, _Mapping]] = ..., admin: _Optional[str] = ..., version: _Optional[str] = ..., clock_ahead_s: _Optional[float] = ..., costs: _Optional[_Union[_mesh_pb2.StepCosts, _Mapping]] = ...) -> None: ...

class DeleteRequest(_message.Message):
    __slots__ = ("application",)
    APPLICATION_FIELD_NUMBER: _ClassVar[int]
    application: str
    def __init__(self, application: _Optional[str] = ...) -> None: ...

class DeleteReply(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class CordonRequest(_message.Message):
    __slots__ = ("target", "undo")
    TARGET_FIELD_NUMBER: _ClassVar[int]
    UNDO_FIELD_NUMBER: _ClassVar[int]
    target: str
    undo: bool
    def __init__(self, target: _Optional[str] = ..., undo: _Optional[bool] = ...) -> None: ...

class CordonReply(_message.Message):
    __slots__ = ("replicas", "warnings")
    REPLICAS_FIELD_NUMBER: _ClassVar[int]
    WARNINGS_FIELD_NUMBER: _ClassVar[int]
    replicas: _containers.RepeatedScalarFieldContainer[str]
    warnings: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, replicas: _Optional[_Iterable[str]] = ..., warnings: _Optional[_Iterable[str]] = ...) -> None: ...

class ShutdownRequest(_message.Message):
    __slots__ = ("grace_s",)
    GRACE_S_FIELD_NUMBER: _ClassVar[int]
    grace_s: float
    def __init__(self, grace_s: _Optional[float] = ...) -> None: ...

class ShutdownReply(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class FollowRequest(_message.Message):
    __slots__ = ("run",)
    RUN_FIELD_NUMBER: _ClassVar[int]
    run: Run
    def __init__(self, run: _Optional[_Union[Run, _Mapping]] = ...) -> None: ...

class FollowEvent(_message.Message):
    __slots__ = ("line",)
    LINE_FIELD_NUMBER: _ClassVar[int]
    line: str
    def __init__(self, line: _Optional[str] = ...) -> None: ...

class LeaveRequest(_message.Message):
    __slots__ = ("run", "grace_s")
    RUN_FIELD_NUMBER: _ClassVar[int]
    GRACE_S_FIELD_NUMBER: _ClassVar[int]
    run: Run
    grace_s: float
    def __init__(self, run: _Optional[_Union[Run, _Mapping]] = ..., grace_s: _Optional[float] = ...) -> None: ...

class LeaveReply(_message.Message):
    __slots__ = ("others",)
    OTHERS_FIELD_NUMBER: _ClassVar[int]
    others: _containers.RepeatedCompositeFieldContainer[Run]
    def __init__(self, others: _Optional[_Iterable[_Union[Run, _Mapping]]] = ...) -> None: ...

class ConfigureRequest(_message.Message):
    __slots__ = ("request_timeout_s",)
    REQUEST_TIMEOUT_S_FIELD_NUMBER: _ClassVar[int]
    request_timeout_s: float
    def __init__(self, request_timeout_s: _Optional[float] = ...) -> None: ...

class ConfigureReply(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...
