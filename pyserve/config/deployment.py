"""The options of one deployment, each declared once: name, type, default, bounds, sentence.

What acts upon them as a whole, such as reading them and checking them against each other, is in
``options``. The type of the keyword is in ``deployment_keywords``, which `make gen` writes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from pyserve.config.declared import Number, Seconds, Whole, option
from pyserve.config.environment import MESSAGE_BYTES_MAX, read_call_settings
from pyserve.config.logging_config import LoggingConfig
from pyserve.config.parts import BackpressureConfig, BatchingConfig, Resources
from pyserve.config.placement import DeploymentActorConfig, GangSchedulingConfig
from pyserve.config.routing import RequestRouterConfig
from pyserve.config.scaling import AutoscalingConfig
from pyserve.config.validation import COST_MAX

# grpc's own default for messages received.
MAX_RECEIVE_MESSAGE_BYTES_DEFAULT = 4 * 1024 * 1024
_TIME = Seconds(exclusive=True)
_SIZE = Whole(minimum=1, maximum=MESSAGE_BYTES_MAX)


@dataclass(frozen=True, kw_only=True)
class DeclaredOptions:
    """The fields of ``DeploymentOptions``."""

    name: str | None = option(
        None,
        "name of the deployment; without it that of the class. Of several in one application "
        "that have the same name all but the first get a number (`Model`, `Model_1`), with a "
        "warning",
    )
    num_replicas: int | Literal["auto"] = option(
        1,
        "how many replicas run, of which [some start at a "
        "time](../concepts/failures.md#more-replicas-than-the-machine-starts-at-once); 0 is "
        "refused in code and in files, as in Ray Serve, and a mesh that is told so by other "
        "ways (`Deployment(cls, DeploymentOptions(num_replicas=0))`) ends the calls at once, "
        'with 503 or UNAVAILABLE; `"auto"`: [follows the load](autoscaling.md), from 1 to 100',
        none_is_default=True,
        keeps_replicas=True,
    )
    autoscaling_config: AutoscalingConfig | None = option(
        None,
        "[how the number of replicas follows the load](autoscaling.md): a mapping, or "
        "`pyserve.config.AutoscalingConfig`",
        keeps_replicas=True,
    )
    max_ongoing_requests: int | None = option(
        None,
        "calls that a replica takes at once, the others wait in the routers; without it 100, "
        "or twice the capacity of the largest batch if that is more, or what a "
        "[continuously batched](../guide/continuous.md) class has running and waiting",
        Whole(minimum=1),
        keeps_replicas=True,
    )
    max_queued_requests: int = option(
        -1,
        "calls that may wait in one router, beyond it RESOURCE_EXHAUSTED; -1: 10 000",
        Whole(minimum=-1),
        keeps_replicas=True,
    )
    max_queued_cost: float | None = option(
        None,
        "what the calls may cost together that wait in one router, in the unit of a "
        "[continuously batched](../guide/continuous.md) class; beyond it RESOURCE_EXHAUSTED; "
        "without it their number alone is limited",
        Number(minimum=0, maximum=COST_MAX),
        keeps_replicas=True,
    )
    backpressure_config: BackpressureConfig | None = option(
        None,
        "how plain HTTP is answered when no more calls may wait: `status_code` 503 (without "
        "it) or 429; `Retry-After` is always there, `retry_after_s` says with what",
        keeps_replicas=True,
    )
    request_timeout_s: float | None = option(
        None,
        "[time limit](ingress.md#time-limits-of-requests) at the ingress: of gRPC calls also "
        "where their deadline is later, of plain HTTP where the client says none",
        _TIME,
        keeps_replicas=True,
    )
    max_receive_message_bytes: int = option(
        MAX_RECEIVE_MESSAGE_BYTES_DEFAULT,
        "largest request message of a gRPC client; beyond it RESOURCE_EXHAUSTED; "
        "`PYSERVE_REPLICA_GRPC_MAX_MESSAGE_LENGTH` changes the default; RPCs of [plain "
        "classes](../guide/services.md#plain-classes) have no limit unless one is set, calls "
        "of handles none at all",
        _SIZE,
        factory=lambda: read_call_settings().message_bytes_max or MAX_RECEIVE_MESSAGE_BYTES_DEFAULT,
    )
    max_send_message_bytes: int | None = option(
        None,
        "largest answer message; beyond it RESOURCE_EXHAUSTED; "
        "`PYSERVE_REPLICA_GRPC_MAX_MESSAGE_LENGTH` changes the default",
        _SIZE,
        factory=lambda: read_call_settings().message_bytes_max,
    )
    max_client_metadata_bytes: int | None = option(
        None,
        "what its gRPC clients take of [text and metadata of a "
        "failure](../concepts/failures.md#failures-with-much-metadata), by the "
        "`grpc.max_metadata_size` of their channels; without it 8 KiB, grpc's default; more than "
        "48 KiB are not sent",
        Whole(minimum=8192),
        is_newer=True,
    )
    serializer: str = option(
        "pickle",
        "codec of the calls of its handles, unless they name another one",
    )
    user_config: object = option(
        None,
        "[passed to `reconfigure`](../guide/replicas.md#a-configuration-that-changes) after "
        "the constructor and, without new replicas, when another one is deployed, to "
        "`rolling_update_percentage` of them at a time; what JSON can carry",
        keyword="Any",
        keeps_replicas=True,
    )
    interceptors: tuple[object, ...] = option(
        (),
        "server interceptors of `grpc.aio`, first one outermost",
        keyword="Sequence[object] | None",
        none_is_default=True,
    )
    deployment_actors: tuple[DeploymentActorConfig, ...] = option(
        (),
        "objects that all replicas share, each a `DeploymentActorConfig`; see "
        "[replicas](../guide/replicas.md#what-replicas-share)",
        keyword="Sequence[DeploymentActorConfig | Mapping[str, Any]] | None",
    )
    startup_timeout_s: float = option(
        300.0,
        "how long import, constructor, `reconfigure` and `warmup` may take",
        _TIME,
        keeps_replicas=True,
    )
    max_constructor_retry_count: int = option(
        20,
        "failed starts after which a version is [given "
        "up](../guide/replicas.md#a-new-version), three for each replica at most; none is "
        "tried again where every first replica raised",
        Whole(minimum=1),
        keeps_replicas=True,
    )
    health_check_period_s: float = option(
        10.0,
        "how often the event loop is asked for a sign of life, and then `check_health`",
        _TIME,
        keeps_replicas=True,
    )
    health_check_timeout_s: float = option(
        30.0,
        "how long each may take; three failures in a row replace the replica, as does a "
        "process that [gives no sign of life](../concepts/failures.md#replicas-that-hang) for"
        " three times both options together",
        _TIME,
        keeps_replicas=True,
    )
    graceful_shutdown_timeout_s: float = option(
        20.0,
        "how long calls in flight may take when a replica stops; two seconds later it is killed",
        Seconds(),
        keeps_replicas=True,
    )
    logging_config: LoggingConfig = option(
        None,
        "[how replicas log](#logs-of-replicas)",
        factory=LoggingConfig,
        shown="`log_level` INFO",
        keyword="LoggingConfig | Mapping[str, Any] | str | None",
        none_is_default=True,
        keeps_replicas=True,
    )
    rolling_update_percentage: float = option(
        0.2,
        "share of the replicas, at least one, that an update replaces at a time: so many new "
        "ones start, and each takes the place of an old one when it serves; with "
        "`max_surge_percent`, so many old ones drain",
        keeps_replicas=True,
    )
    max_surge_percent: int = option(
        0,
        "while an update goes on, at most so many percent more processes than replicas, at "
        "least one, those that drain included; 0: those of one step, and of drains",
        Whole(minimum=0, maximum=100),
        keeps_replicas=True,
    )
    env_vars: Mapping[str, str] = option(
        {},
        "environment variables of the replicas, on top of the driver's",
        factory=dict,
        none_is_default=True,
    )
    working_dir: str | None = option(
        None,
        "working directory of the replicas, where they look for modules first: a folder as it"
        " is, or a `.zip` that is unpacked; without it the driver's",
    )
    pip: Sequence[str] = option(
        (),
        "packages that the replicas have besides the driver's, see below",
        keyword="Sequence[str] | Mapping[str, Any] | None",
        none_is_default=True,
    )
    resources: Resources = option(
        None,
        "what a replica reserves, see below",
        factory=Resources,
        shown="`num_cpus` None",
    )
    batching_config: BatchingConfig | None = option(
        None,
        "batches for methods without a decorator, see below",
    )
    request_router_config: RequestRouterConfig = option(
        None,
        "[how a replica is picked](routing.md)",
        factory=RequestRouterConfig,
        shown="`policy` late_binding",
        keeps_replicas=True,
    )
    traffic: Mapping[str, float] = option(
        {},
        "[shares of the calls from outside](routing.md#shares-of-the-calls) that other "
        "deployments get",
        factory=dict,
        none_is_default=True,
        keeps_replicas=True,
    )
    mirror: Mapping[str, float] = option(
        {},
        "shares of them that other deployments get as well, without answering",
        factory=dict,
        none_is_default=True,
        keeps_replicas=True,
    )
    max_replicas_per_node: int | None = option(
        None,
        "most replicas of a version on one machine",
        Whole(minimum=1),
        under_process="passes over it, as all are on one",
    )
    placement_group_bundles: Sequence[Mapping[str, float]] | None = option(
        None,
        "resources of each replica in several parts; the first one holds the replica, so "
        "`resources` have to fit into it",
        under_process="the same",
    )
    placement_group_strategy: str = option(
        "PACK",
        "how the parts lie together; without parts it is refused",
        none_is_default=True,
        under_process="the same",
    )
    placement_group_bundle_label_selector: Sequence[Mapping[str, str]] | None = option(
        None,
        "labels of the machines for the parts: one for all, or one for each",
        under_process="the same",
    )
    gang_scheduling_config: GangSchedulingConfig | None = option(
        None,
        "replicas in groups, see below",
        under_process="acts upon it; how they lie together is no matter",
        is_newer=True,
    )
    pod_template: Mapping[str, object] | None = option(
        None,
        "what the pods of its replicas have besides, [on "
        "Kubernetes](../guide/kubernetes.md#pods-of-replicas)",
        under_process="passes over it, as there are no pods",
        is_newer=True,
    )
    graceful_shutdown_wait_loop_s: float = option(
        2.0,
        "a replica that drains ends as soon as it is idle, and asks nobody in between",
        Seconds(),
        keeps_replicas=True,
        is_without_effect=True,
    )
