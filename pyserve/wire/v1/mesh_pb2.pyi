from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class RouterLoad(_message.Message):
    __slots__ = ("deployments",)
    DEPLOYMENTS_FIELD_NUMBER: _ClassVar[int]
    deployments: _containers.RepeatedCompositeFieldContainer[DeploymentLoad]
    def __init__(self, deployments: _Optional[_Iterable[_Union[DeploymentLoad, _Mapping]]] = ...) -> None: ...

class DeploymentLoad(_message.Message):
    __slots__ = ("key", "parked", "offered")
    KEY_FIELD_NUMBER: _ClassVar[int]
    PARKED_FIELD_NUMBER: _ClassVar[int]
    OFFERED_FIELD_NUMBER: _ClassVar[int]
    key: DeploymentKey
    parked: int
    offered: int
    def __init__(self, key: _Optional[_Union[DeploymentKey, _Mapping]] = ..., parked: _Optional[int] = ..., offered: _Optional[int] = ...) -> None: ...

class ObserveReply(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ReplicaMessage(_message.Message):
    __slots__ = ("hello", "ready", "failed", "health", "draining", "pong", "routing_stats", "reconfigured", "load")
    HELLO_FIELD_NUMBER: _ClassVar[int]
    READY_FIELD_NUMBER: _ClassVar[int]
    FAILED_FIELD_NUMBER: _ClassVar[int]
    HEALTH_FIELD_NUMBER: _ClassVar[int]
    DRAINING_FIELD_NUMBER: _ClassVar[int]
    PONG_FIELD_NUMBER: _ClassVar[int]
    ROUTING_STATS_FIELD_NUMBER: _ClassVar[int]
    RECONFIGURED_FIELD_NUMBER: _ClassVar[int]
    LOAD_FIELD_NUMBER: _ClassVar[int]
    hello: Hello
    ready: Ready
    failed: Failed
    health: Health
    draining: Draining
    pong: Pong
    routing_stats: RoutingStats
    reconfigured: Reconfigured
    load: ReplicaLoad
    def __init__(self, hello: _Optional[_Union[Hello, _Mapping]] = ..., ready: _Optional[_Union[Ready, _Mapping]] = ..., failed: _Optional[_Union[Failed, _Mapping]] = ..., health: _Optional[_Union[Health, _Mapping]] = ..., draining: _Optional[_Union[Draining, _Mapping]] = ..., pong: _Optional[_Union[Pong, _Mapping]] = ..., routing_stats: _Optional[_Union[RoutingStats, _Mapping]] = ..., reconfigured: _Optional[_Union[Reconfigured, _Mapping]] = ..., load: _Optional[_Union[ReplicaLoad, _Mapping]] = ...) -> None: ...

class Hello(_message.Message):
    __slots__ = ("replica_id", "application", "deployment", "version", "pid", "node", "zone", "external", "admin", "now")
    REPLICA_ID_FIELD_NUMBER: _ClassVar[int]
    APPLICATION_FIELD_NUMBER: _ClassVar[int]
    DEPLOYMENT_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    PID_FIELD_NUMBER: _ClassVar[int]
    NODE_FIELD_NUMBER: _ClassVar[int]
    ZONE_FIELD_NUMBER: _ClassVar[int]
    EXTERNAL_FIELD_NUMBER: _ClassVar[int]
    ADMIN_FIELD_NUMBER: _ClassVar[int]
    NOW_FIELD_NUMBER: _ClassVar[int]
    replica_id: str
    application: str
    deployment: str
    version: str
    pid: int
    node: str
    zone: str
    external: External
    admin: str
    now: float
    def __init__(self, replica_id: _Optional[str] = ..., application: _Optional[str] = ..., deployment: _Optional[str] = ..., version: _Optional[str] = ..., pid: _Optional[int] = ..., node: _Optional[str] = ..., zone: _Optional[str] = ..., external: _Optional[_Union[External, _Mapping]] = ..., admin: _Optional[str] = ..., now: _Optional[float] = ...) -> None: ...

class External(_message.Message):
    __slots__ = ("spec", "ingress_deployment", "route_prefix", "route_prefix_is_default", "started_at")
    SPEC_FIELD_NUMBER: _ClassVar[int]
    INGRESS_DEPLOYMENT_FIELD_NUMBER: _ClassVar[int]
    ROUTE_PREFIX_FIELD_NUMBER: _ClassVar[int]
    ROUTE_PREFIX_IS_DEFAULT_FIELD_NUMBER: _ClassVar[int]
    STARTED_AT_FIELD_NUMBER: _ClassVar[int]
    spec: DeploymentSpec
    ingress_deployment: str
    route_prefix: str
    route_prefix_is_default: bool
    started_at: float
    def __init__(self, spec: _Optional[_Union[DeploymentSpec, _Mapping]] = ..., ingress_deployment: _Optional[str] = ..., route_prefix: _Optional[str] = ..., route_prefix_is_default: _Optional[bool] = ..., started_at: _Optional[float] = ...) -> None: ...

class Ready(_message.Message):
    __slots__ = ("endpoints", "services", "file_descriptors", "deployment_version", "http", "http_prefixes", "idempotent_methods", "replica_metadata_json", "config", "engine_models")
    ENDPOINTS_FIELD_NUMBER: _ClassVar[int]
    SERVICES_FIELD_NUMBER: _ClassVar[int]
    FILE_DESCRIPTORS_FIELD_NUMBER: _ClassVar[int]
    DEPLOYMENT_VERSION_FIELD_NUMBER: _ClassVar[int]
    HTTP_FIELD_NUMBER: _ClassVar[int]
    HTTP_PREFIXES_FIELD_NUMBER: _ClassVar[int]
    IDEMPOTENT_METHODS_FIELD_NUMBER: _ClassVar[int]
    REPLICA_METADATA_JSON_FIELD_NUMBER: _ClassVar[int]
    CONFIG_FIELD_NUMBER: _ClassVar[int]
    ENGINE_MODELS_FIELD_NUMBER: _ClassVar[int]
    endpoints: Endpoints
    services: _containers.RepeatedScalarFieldContainer[str]
    file_descriptors: _containers.RepeatedScalarFieldContainer[bytes]
    deployment_version: str
    http: bool
    http_prefixes: _containers.RepeatedScalarFieldContainer[str]
    idempotent_methods: _containers.RepeatedScalarFieldContainer[str]
    replica_metadata_json: str
    config: int
    engine_models: _containers.RepeatedCompositeFieldContainer[EngineModel]
    def __init__(self, endpoints: _Optional[_Union[Endpoints, _Mapping]] = ..., services: _Optional[_Iterable[str]] = ..., file_descriptors: _Optional[_Iterable[bytes]] = ..., deployment_version: _Optional[str] = ..., http: _Optional[bool] = ..., http_prefixes: _Optional[_Iterable[str]] = ..., idempotent_methods: _Optional[_Iterable[str]] = ..., replica_metadata_json: _Optional[str] = ..., config: _Optional[int] = ..., engine_models: _Optional[_Iterable[_Union[EngineModel, _Mapping]]] = ...) -> None: ...

class EngineModel(_message.Message):
    __slots__ = ("id", "aliases", "owned_by", "created", "max_model_len", "root", "takes_adapters", "adapters", "tasks")
    ID_FIELD_NUMBER: _ClassVar[int]
    ALIASES_FIELD_NUMBER: _ClassVar[int]
    OWNED_BY_FIELD_NUMBER: _ClassVar[int]
    CREATED_FIELD_NUMBER: _ClassVar[int]
    MAX_MODEL_LEN_FIELD_NUMBER: _ClassVar[int]
    ROOT_FIELD_NUMBER: _ClassVar[int]
    TAKES_ADAPTERS_FIELD_NUMBER: _ClassVar[int]
    ADAPTERS_FIELD_NUMBER: _ClassVar[int]
    TASKS_FIELD_NUMBER: _ClassVar[int]
    id: str
    aliases: _containers.RepeatedScalarFieldContainer[str]
    owned_by: str
    created: int
    max_model_len: int
    root: str
    takes_adapters: bool
    adapters: _containers.RepeatedScalarFieldContainer[str]
    tasks: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, id: _Optional[str] = ..., aliases: _Optional[_Iterable[str]] = ..., owned_by: _Optional[str] = ..., created: _Optional[int] = ..., max_model_len: _Optional[int] = ..., root: _Optional[str] = ..., takes_adapters: _Optional[bool] = ..., adapters: _Optional[_Iterable[str]] = ..., tasks: _Optional[_Iterable[str]] = ...) -> None: ...

class Endpoints(_message.Message):
    __slots__ = ("address", "unix_path", "direct_http", "direct_grpc", "proves_itself")
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    UNIX_PATH_FIELD_NUMBER: _ClassVar[int]
    DIRECT_HTTP_FIELD_NUMBER: _ClassVar[int]
    DIRECT_GRPC_FIELD_NUMBER: _ClassVar[int]
    PROVES_ITSELF_FIELD_NUMBER: _ClassVar[int]
    address: str
    unix_path: str
    direct_http: str
    direct_grpc: str
    proves_itself: bool
    def __init__(self, address: _Optional[str] = ..., unix_path: _Optional[str] = ..., direct_http: _Optional[str] = ..., direct_grpc: _Optional[str] = ..., proves_itself: _Optional[bool] = ...) -> None: ...

class Failed(_message.Message):
    __slots__ = ("summary", "traceback", "user_code")
    SUMMARY_FIELD_NUMBER: _ClassVar[int]
    TRACEBACK_FIELD_NUMBER: _ClassVar[int]
    USER_CODE_FIELD_NUMBER: _ClassVar[int]
    summary: str
    traceback: str
    user_code: bool
    def __init__(self, summary: _Optional[str] = ..., traceback: _Optional[str] = ..., user_code: _Optional[bool] = ...) -> None: ...

class Health(_message.Message):
    __slots__ = ("healthy", "reason")
    HEALTHY_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    healthy: bool
    reason: str
    def __init__(self, healthy: _Optional[bool] = ..., reason: _Optional[str] = ...) -> None: ...

class RoutingStats(_message.Message):
    __slots__ = ("json",)
    JSON_FIELD_NUMBER: _ClassVar[int]
    json: str
    def __init__(self, json: _Optional[str] = ...) -> None: ...

class ReplicaLoad(_message.Message):
    __slots__ = ("ongoing", "calls", "busy_s", "stats_json", "cost", "steps", "costs")
    ONGOING_FIELD_NUMBER: _ClassVar[int]
    CALLS_FIELD_NUMBER: _ClassVar[int]
    BUSY_S_FIELD_NUMBER: _ClassVar[int]
    STATS_JSON_FIELD_NUMBER: _ClassVar[int]
    COST_FIELD_NUMBER: _ClassVar[int]
    STEPS_FIELD_NUMBER: _ClassVar[int]
    COSTS_FIELD_NUMBER: _ClassVar[int]
    ongoing: int
    calls: int
    busy_s: float
    stats_json: str
    cost: float
    steps: StepLoad
    costs: StepCosts
    def __init__(self, ongoing: _Optional[int] = ..., calls: _Optional[int] = ..., busy_s: _Optional[float] = ..., stats_json: _Optional[str] = ..., cost: _Optional[float] = ..., steps: _Optional[_Union[StepLoad, _Mapping]] = ..., costs: _Optional[_Union[StepCosts, _Mapping]] = ...) -> None: ...

class StepCosts(_message.Message):
    __slots__ = ("running", "waiting", "budget")
    RUNNING_FIELD_NUMBER: _ClassVar[int]
    WAITING_FIELD_NUMBER: _ClassVar[int]
    BUDGET_FIELD_NUMBER: _ClassVar[int]
    running: float
    waiting: float
    budget: float
    def __init__(self, running: _Optional[float] = ..., waiting: _Optional[float] = ..., budget: _Optional[float] = ...) -> None: ...

class StepLoad(_message.Message):
    __slots__ = ("first_values", "first_value_s", "next_values", "next_value_s", "unanswered", "unanswered_s", "fullness")
    FIRST_VALUES_FIELD_NUMBER: _ClassVar[int]
    FIRST_VALUE_S_FIELD_NUMBER: _ClassVar[int]
    NEXT_VALUES_FIELD_NUMBER: _ClassVar[int]
    NEXT_VALUE_S_FIELD_NUMBER: _ClassVar[int]
    UNANSWERED_FIELD_NUMBER: _ClassVar[int]
    UNANSWERED_S_FIELD_NUMBER: _ClassVar[int]
    FULLNESS_FIELD_NUMBER: _ClassVar[int]
    first_values: int
    first_value_s: float
    next_values: int
    next_value_s: float
    unanswered: int
    unanswered_s: float
    fullness: float
    def __init__(self, first_values: _Optional[int] = ..., first_value_s: _Optional[float] = ..., next_values: _Optional[int] = ..., next_value_s: _Optional[float] = ..., unanswered: _Optional[int] = ..., unanswered_s: _Optional[float] = ..., fullness: _Optional[float] = ...) -> None: ...

class Draining(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ReplicaCommand(_message.Message):
    __slots__ = ("assign", "drain", "limits", "ping", "reconfigure", "close_web_sockets")
    ASSIGN_FIELD_NUMBER: _ClassVar[int]
    DRAIN_FIELD_NUMBER: _ClassVar[int]
    LIMITS_FIELD_NUMBER: _ClassVar[int]
    PING_FIELD_NUMBER: _ClassVar[int]
    RECONFIGURE_FIELD_NUMBER: _ClassVar[int]
    CLOSE_WEB_SOCKETS_FIELD_NUMBER: _ClassVar[int]
    assign: Assign
    drain: Drain
    limits: Limits
    ping: Ping
    reconfigure: Reconfigure
    close_web_sockets: CloseWebSockets
    def __init__(self, assign: _Optional[_Union[Assign, _Mapping]] = ..., drain: _Optional[_Union[Drain, _Mapping]] = ..., limits: _Optional[_Union[Limits, _Mapping]] = ..., ping: _Optional[_Union[Ping, _Mapping]] = ..., reconfigure: _Optional[_Union[Reconfigure, _Mapping]] = ..., close_web_sockets: _Optional[_Union[CloseWebSockets, _Mapping]] = ...) -> None: ...

class CloseWebSockets(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Ping(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Pong(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Reconfigure(_message.Message):
    __slots__ = ("config", "user_config_json")
    CONFIG_FIELD_NUMBER: _ClassVar[int]
    USER_CONFIG_JSON_FIELD_NUMBER: _ClassVar[int]
    config: int
    user_config_json: str
    def __init__(self, config: _Optional[int] = ..., user_config_json: _Optional[str] = ...) -> None: ...

class Reconfigured(_message.Message):
    __slots__ = ("config", "summary", "traceback")
    CONFIG_FIELD_NUMBER: _ClassVar[int]
    SUMMARY_FIELD_NUMBER: _ClassVar[int]
    TRACEBACK_FIELD_NUMBER: _ClassVar[int]
    config: int
    summary: str
    traceback: str
    def __init__(self, config: _Optional[int] = ..., summary: _Optional[str] = ..., traceback: _Optional[str] = ...) -> None: ...

class Assign(_message.Message):
    __slots__ = ("replica_id", "spec", "deployment_version", "development", "config", "rank", "world_size", "zone", "gang")
    REPLICA_ID_FIELD_NUMBER: _ClassVar[int]
    SPEC_FIELD_NUMBER: _ClassVar[int]
    DEPLOYMENT_VERSION_FIELD_NUMBER: _ClassVar[int]
    DEVELOPMENT_FIELD_NUMBER: _ClassVar[int]
    CONFIG_FIELD_NUMBER: _ClassVar[int]
    RANK_FIELD_NUMBER: _ClassVar[int]
    WORLD_SIZE_FIELD_NUMBER: _ClassVar[int]
    ZONE_FIELD_NUMBER: _ClassVar[int]
    GANG_FIELD_NUMBER: _ClassVar[int]
    replica_id: str
    spec: DeploymentSpec
    deployment_version: str
    development: bool
    config: int
    rank: Rank
    world_size: int
    zone: str
    gang: Gang
    def __init__(self, replica_id: _Optional[str] = ..., spec: _Optional[_Union[DeploymentSpec, _Mapping]] = ..., deployment_version: _Optional[str] = ..., development: _Optional[bool] = ..., config: _Optional[int] = ..., rank: _Optional[_Union[Rank, _Mapping]] = ..., world_size: _Optional[int] = ..., zone: _Optional[str] = ..., gang: _Optional[_Union[Gang, _Mapping]] = ...) -> None: ...

class Gang(_message.Message):
    __slots__ = ("id", "rank", "replicas")
    ID_FIELD_NUMBER: _ClassVar[int]
    RANK_FIELD_NUMBER: _ClassVar[int]
    REPLICAS_FIELD_NUMBER: _ClassVar[int]
    id: str
    rank: int
    replicas: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, id: _Optional[str] = ..., rank: _Optional[int] = ..., replicas: _Optional[_Iterable[str]] = ...) -> None: ...

class Rank(_message.Message):
    __slots__ = ("rank", "node_rank", "local_rank")
    RANK_FIELD_NUMBER: _ClassVar[int]
    NODE_RANK_FIELD_NUMBER: _ClassVar[int]
    LOCAL_RANK_FIELD_NUMBER: _ClassVar[int]
    rank: int
    node_rank: int
    local_rank: int
    def __init__(self, rank: _Optional[int] = ..., node_rank: _Optional[int] = ..., local_rank: _Optional[int] = ...) -> None: ...

class Drain(_message.Message):
    __slots__ = ("grace_s",)
    GRACE_S_FIELD_NUMBER: _ClassVar[int]
    grace_s: float
    def __init__(self, grace_s: _Optional[float] = ...) -> None: ...

class Limits(_message.Message):
    __slots__ = ("max_ongoing_requests", "world_size", "options_json")
    MAX_ONGOING_REQUESTS_FIELD_NUMBER: _ClassVar[int]
    WORLD_SIZE_FIELD_NUMBER: _ClassVar[int]
    OPTIONS_JSON_FIELD_NUMBER: _ClassVar[int]
    max_ongoing_requests: int
    world_size: int
    options_json: str
    def __init__(self, max_ongoing_requests: _Optional[int] = ..., world_size: _Optional[int] = ..., options_json: _Optional[str] = ...) -> None: ...

class DeploymentSpec(_message.Message):
    __slots__ = ("application", "name", "code", "arguments", "options_json", "interceptors", "is_ingress", "calls", "takes_http")
    APPLICATION_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    CODE_FIELD_NUMBER: _ClassVar[int]
    ARGUMENTS_FIELD_NUMBER: _ClassVar[int]
    OPTIONS_JSON_FIELD_NUMBER: _ClassVar[int]
    INTERCEPTORS_FIELD_NUMBER: _ClassVar[int]
    IS_INGRESS_FIELD_NUMBER: _ClassVar[int]
    CALLS_FIELD_NUMBER: _ClassVar[int]
    TAKES_HTTP_FIELD_NUMBER: _ClassVar[int]
    application: str
    name: str
    code: Code
    arguments: bytes
    options_json: str
    interceptors: bytes
    is_ingress: bool
    calls: _containers.RepeatedCompositeFieldContainer[DeploymentKey]
    takes_http: bool
    def __init__(self, application: _Optional[str] = ..., name: _Optional[str] = ..., code: _Optional[_Union[Code, _Mapping]] = ..., arguments: _Optional[bytes] = ..., options_json: _Optional[str] = ..., interceptors: _Optional[bytes] = ..., is_ingress: _Optional[bool] = ..., calls: _Optional[_Iterable[_Union[DeploymentKey, _Mapping]]] = ..., takes_http: _Optional[bool] = ...) -> None: ...

class Code(_message.Message):
    __slots__ = ("import_path", "pickled", "sys_path", "working_directory", "fingerprint")
    IMPORT_PATH_FIELD_NUMBER: _ClassVar[int]
    PICKLED_FIELD_NUMBER: _ClassVar[int]
    SYS_PATH_FIELD_NUMBER: _ClassVar[int]
    WORKING_DIRECTORY_FIELD_NUMBER: _ClassVar[int]
    FINGERPRINT_FIELD_NUMBER: _ClassVar[int]
    import_path: str
    pickled: bytes
    sys_path: _containers.RepeatedScalarFieldContainer[str]
    working_directory: str
    fingerprint: bytes
    def __init__(self, import_path: _Optional[str] = ..., pickled: _Optional[bytes] = ..., sys_path: _Optional[_Iterable[str]] = ..., working_directory: _Optional[str] = ..., fingerprint: _Optional[bytes] = ...) -> None: ...

class WatchRequest(_message.Message):
    __slots__ = ("node", "zone", "all", "deployments", "version", "takes_patches")
    NODE_FIELD_NUMBER: _ClassVar[int]
    ZONE_FIELD_NUMBER: _ClassVar[int]
    ALL_FIELD_NUMBER: _ClassVar[int]
    DEPLOYMENTS_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    TAKES_PATCHES_FIELD_NUMBER: _ClassVar[int]
    node: str
    zone: str
    all: bool
    deployments: _containers.RepeatedCompositeFieldContainer[DeploymentKey]
    version: str
    takes_patches: bool
    def __init__(self, node: _Optional[str] = ..., zone: _Optional[str] = ..., all: _Optional[bool] = ..., deployments: _Optional[_Iterable[_Union[DeploymentKey, _Mapping]]] = ..., version: _Optional[str] = ..., takes_patches: _Optional[bool] = ...) -> None: ...

class DeploymentKey(_message.Message):
    __slots__ = ("application", "name")
    APPLICATION_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    application: str
    name: str
    def __init__(self, application: _Optional[str] = ..., name: _Optional[str] = ...) -> None: ...

class WatchUpdate(_message.Message):
    __slots__ = ("base_version", "version", "changed", "removed", "patched")
    BASE_VERSION_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    CHANGED_FIELD_NUMBER: _ClassVar[int]
    REMOVED_FIELD_NUMBER: _ClassVar[int]
    PATCHED_FIELD_NUMBER: _ClassVar[int]
    base_version: int
    version: int
    changed: _containers.RepeatedCompositeFieldContainer[DeploymentView]
    removed: _containers.RepeatedCompositeFieldContainer[DeploymentKey]
    patched: _containers.RepeatedCompositeFieldContainer[ViewPatch]
    def __init__(self, base_version: _Optional[int] = ..., version: _Optional[int] = ..., changed: _Optional[_Iterable[_Union[DeploymentView, _Mapping]]] = ..., removed: _Optional[_Iterable[_Union[DeploymentKey, _Mapping]]] = ..., patched: _Optional[_Iterable[_Union[ViewPatch, _Mapping]]] = ...) -> None: ...

class ViewPatch(_message.Message):
    __slots__ = ("key", "changed", "removed")
    KEY_FIELD_NUMBER: _ClassVar[int]
    CHANGED_FIELD_NUMBER: _ClassVar[int]
    REMOVED_FIELD_NUMBER: _ClassVar[int]
    key: DeploymentKey
    changed: _containers.RepeatedCompositeFieldContainer[ReplicaView]
    removed: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, key: _Optional[_Union[DeploymentKey, _Mapping]] = ..., changed: _Optional[_Iterable[_Union[ReplicaView, _Mapping]]] = ..., removed: _Optional[_Iterable[str]] = ...) -> None: ...

class DeploymentView(_message.Message):
    __slots__ = ("key", "services", "replicas", "max_queued_requests", "request_timeout_s", "max_request_bytes", "file_descriptors", "serializer", "http_prefixes", "queue_full_status", "retry_after_s", "router", "idempotent_methods", "traffic", "mirror", "is_scaled_to_zero", "scales_with_load", "class_prefixes", "engine_models", "llm_prefix")
    KEY_FIELD_NUMBER: _ClassVar[int]
    SERVICES_FIELD_NUMBER: _ClassVar[int]
    REPLICAS_FIELD_NUMBER: _ClassVar[int]
    MAX_QUEUED_REQUESTS_FIELD_NUMBER: _ClassVar[int]
    REQUEST_TIMEOUT_S_FIELD_NUMBER: _ClassVar[int]
    MAX_REQUEST_BYTES_FIELD_NUMBER: _ClassVar[int]
    FILE_DESCRIPTORS_FIELD_NUMBER: _ClassVar[int]
    SERIALIZER_FIELD_NUMBER: _ClassVar[int]
    HTTP_PREFIXES_FIELD_NUMBER: _ClassVar[int]
    QUEUE_FULL_STATUS_FIELD_NUMBER: _ClassVar[int]
    RETRY_AFTER_S_FIELD_NUMBER: _ClassVar[int]
    ROUTER_FIELD_NUMBER: _ClassVar[int]
    IDEMPOTENT_METHODS_FIELD_NUMBER: _ClassVar[int]
    TRAFFIC_FIELD_NUMBER: _ClassVar[int]
    MIRROR_FIELD_NUMBER: _ClassVar[int]
    IS_SCALED_TO_ZERO_FIELD_NUMBER: _ClassVar[int]
    SCALES_WITH_LOAD_FIELD_NUMBER: _ClassVar[int]
    CLASS_PREFIXES_FIELD_NUMBER: _ClassVar[int]
    ENGINE_MODELS_FIELD_NUMBER: _ClassVar[int]
    LLM_PREFIX_FIELD_NUMBER: _ClassVar[int]
    key: DeploymentKey
    services: _containers.RepeatedScalarFieldContainer[str]
    replicas: _containers.RepeatedCompositeFieldContainer[ReplicaView]
    max_queued_requests: int
    request_timeout_s: float
    max_request_bytes: int
    file_descriptors: _containers.RepeatedScalarFieldContainer[bytes]
    serializer: str
    http_prefixes: _containers.RepeatedScalarFieldContainer[str]
    queue_full_status: int
    retry_after_s: float
    router: RouterSettings
    idempotent_methods: _containers.RepeatedScalarFieldContainer[str]
    traffic: _containers.RepeatedCompositeFieldContainer[Share]
    mirror: _containers.RepeatedCompositeFieldContainer[Share]
    is_scaled_to_zero: bool
    scales_with_load: bool
    class_prefixes: _containers.RepeatedScalarFieldContainer[str]
    engine_models: _containers.RepeatedCompositeFieldContainer[EngineModel]
    llm_prefix: str
    def __init__(self, key: _Optional[_Union[DeploymentKey, _Mapping]] = ..., services: _Optional[_Iterable[str]] = ..., replicas: _Optional[_Iterable[_Union[ReplicaView, _Mapping]]] = ..., max_queued_requests: _Optional[int] = ..., request_timeout_s: _Optional[float] = ..., max_request_bytes: _Optional[int] = ..., file_descriptors: _Optional[_Iterable[bytes]] = ..., serializer: _Optional[str] = ..., http_prefixes: _Optional[_Iterable[str]] = ..., queue_full_status: _Optional[int] = ..., retry_after_s: _Optional[float] = ..., router: _Optional[_Union[RouterSettings, _Mapping]] = ..., idempotent_methods: _Optional[_Iterable[str]] = ..., traffic: _Optional[_Iterable[_Union[Share, _Mapping]]] = ..., mirror: _Optional[_Iterable[_Union[Share, _Mapping]]] = ..., is_scaled_to_zero: _Optional[bool] = ..., scales_with_load: _Optional[bool] = ..., class_prefixes: _Optional[_Iterable[str]] = ..., engine_models: _Optional[_Iterable[_Union[EngineModel, _Mapping]]] = ..., llm_prefix: _Optional[str] = ...) -> None: ...

class Share(_message.Message):
    __slots__ = ("key", "weight")
    KEY_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_FIELD_NUMBER: _ClassVar[int]
    key: DeploymentKey
    weight: float
    def __init__(self, key: _Optional[_Union[DeploymentKey, _Mapping]] = ..., weight: _Optional[float] = ...) -> None: ...

class RouterSettings(_message.Message):
    __slots__ = ("policy", "prefer_node", "prefer_zone", "initial_backoff_s", "backoff_multiplier", "max_backoff_s", "slow_start_s", "retry_attempts_max", "retry_budget_percent", "hedging", "ejection_fall", "ejection_rise", "ejection_interval_s", "policy_class", "retry_codes", "load_bound", "options")
    class OptionsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: float
        def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...
    POLICY_FIELD_NUMBER: _ClassVar[int]
    PREFER_NODE_FIELD_NUMBER: _ClassVar[int]
    PREFER_ZONE_FIELD_NUMBER: _ClassVar[int]
    INITIAL_BACKOFF_S_FIELD_NUMBER: _ClassVar[int]
    BACKOFF_MULTIPLIER_FIELD_NUMBER: _ClassVar[int]
    MAX_BACKOFF_S_FIELD_NUMBER: _ClassVar[int]
    SLOW_START_S_FIELD_NUMBER: _ClassVar[int]
    RETRY_ATTEMPTS_MAX_FIELD_NUMBER: _ClassVar[int]
    RETRY_BUDGET_PERCENT_FIELD_NUMBER: _ClassVar[int]
    HEDGING_FIELD_NUMBER: _ClassVar[int]
    EJECTION_FALL_FIELD_NUMBER: _ClassVar[int]
    EJECTION_RISE_FIELD_NUMBER: _ClassVar[int]
    EJECTION_INTERVAL_S_FIELD_NUMBER: _ClassVar[int]
    POLICY_CLASS_FIELD_NUMBER: _ClassVar[int]
    RETRY_CODES_FIELD_NUMBER: _ClassVar[int]
    LOAD_BOUND_FIELD_NUMBER: _ClassVar[int]
    OPTIONS_FIELD_NUMBER: _ClassVar[int]
    policy: str
    prefer_node: bool
    prefer_zone: bool
    initial_backoff_s: float
    backoff_multiplier: float
    max_backoff_s: float
    slow_start_s: float
    retry_attempts_max: int
    retry_budget_percent: int
    hedging: bool
    ejection_fall: int
    ejection_rise: int
    ejection_interval_s: float
    policy_class: PolicyClass
    retry_codes: _containers.RepeatedScalarFieldContainer[int]
    load_bound: float
    options: _containers.ScalarMap[str, float]
    def __init__(self, policy: _Optional[str] = ..., prefer_node: _Optional[bool] = ..., prefer_zone: _Optional[bool] = ..., initial_backoff_s: _Optional[float] = ..., backoff_multiplier: _Optional[float] = ..., max_backoff_s: _Optional[float] = ..., slow_start_s: _Optional[float] = ..., retry_attempts_max: _Optional[int] = ..., retry_budget_percent: _Optional[int] = ..., hedging: _Optional[bool] = ..., ejection_fall: _Optional[int] = ..., ejection_rise: _Optional[int] = ..., ejection_interval_s: _Optional[float] = ..., policy_class: _Optional[_Union[PolicyClass, _Mapping]] = ..., retry_codes: _Optional[_Iterable[int]] = ..., load_bound: _Optional[float] = ..., options: _Optional[_Mapping[str, float]] = ...) -> None: ...

class PolicyClass(_message.Message):
    __slots__ = ("import_path", "kwargs_json", "sys_path")
    IMPORT_PATH_FIELD_NUMBER: _ClassVar[int]
    KWARGS_JSON_FIELD_NUMBER: _ClassVar[int]
    SYS_PATH_FIELD_NUMBER: _ClassVar[int]
    import_path: str
    kwargs_json: str
    sys_path: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, import_path: _Optional[str] = ..., kwargs_json: _Optional[str] = ..., sys_path: _Optional[_Iterable[str]] = ...) -> None: ...

class ReplicaView(_message.Message):
    __slots__ = ("replica_id", "node", "zone", "endpoints", "max_ongoing_requests", "routing_stats_json", "replica_metadata_json")
    REPLICA_ID_FIELD_NUMBER: _ClassVar[int]
    NODE_FIELD_NUMBER: _ClassVar[int]
    ZONE_FIELD_NUMBER: _ClassVar[int]
    ENDPOINTS_FIELD_NUMBER: _ClassVar[int]
    MAX_ONGOING_REQUESTS_FIELD_NUMBER: _ClassVar[int]
    ROUTING_STATS_JSON_FIELD_NUMBER: _ClassVar[int]
    REPLICA_METADATA_JSON_FIELD_NUMBER: _ClassVar[int]
    replica_id: str
    node: str
    zone: str
    endpoints: Endpoints
    max_ongoing_requests: int
    routing_stats_json: str
    replica_metadata_json: str
    def __init__(self, replica_id: _Optional[str] = ..., node: _Optional[str] = ..., zone: _Optional[str] = ..., endpoints: _Optional[_Union[Endpoints, _Mapping]] = ..., max_ongoing_requests: _Optional[int] = ..., routing_stats_json: _Optional[str] = ..., replica_metadata_json: _Optional[str] = ...) -> None: ...
