"""Written by `make gen` from the options of ``deployment``, in this folder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypedDict

if TYPE_CHECKING:
    from pyserve.config.logging_config import LoggingConfig
    from pyserve.config.parts import BackpressureConfig, BatchingConfig, Resources
    from pyserve.config.placement import DeploymentActorConfig, GangSchedulingConfig
    from pyserve.config.routing import RequestRouterConfig
    from pyserve.config.scaling import AutoscalingConfig


class DeploymentKeywords(TypedDict, total=False):
    """What ``deployment(...)`` and ``.options(...)`` take; see ``deployment`` for the defaults."""

    name: str | None
    num_replicas: int | Literal["auto"] | None
    autoscaling_config: AutoscalingConfig | Mapping[str, Any] | None
    max_ongoing_requests: int | None
    max_queued_requests: int
    max_queued_cost: float | None
    backpressure_config: BackpressureConfig | Mapping[str, Any] | None
    request_timeout_s: float | None
    max_receive_message_bytes: int
    max_send_message_bytes: int | None
    max_client_metadata_bytes: int | None
    serializer: str
    user_config: Any
    interceptors: Sequence[object] | None
    deployment_actors: Sequence[DeploymentActorConfig | Mapping[str, Any]] | None
    startup_timeout_s: float
    max_constructor_retry_count: int
    health_check_period_s: float
    health_check_timeout_s: float
    graceful_shutdown_timeout_s: float
    logging_config: LoggingConfig | Mapping[str, Any] | str | None
    rolling_update_percentage: float
    max_surge_percent: int
    env_vars: Mapping[str, str] | None
    working_dir: str | None
    pip: Sequence[str] | Mapping[str, Any] | None
    resources: Resources | Mapping[str, Any] | None
    batching_config: BatchingConfig | Mapping[str, Any] | None
    request_router_config: RequestRouterConfig | Mapping[str, Any] | None
    traffic: Mapping[str, float] | None
    mirror: Mapping[str, float] | None
    max_replicas_per_node: int | None
    placement_group_bundles: Sequence[Mapping[str, float]] | None
    placement_group_strategy: str | None
    placement_group_bundle_label_selector: Sequence[Mapping[str, str]] | None
    gang_scheduling_config: GangSchedulingConfig | Mapping[str, Any] | None
    pod_template: Mapping[str, object] | None
    graceful_shutdown_wait_loop_s: float
    # Older names, see docs/reference/deployment-options.md.
    ray_actor_options: Mapping[str, Any] | None
    runtime_env: Mapping[str, Any] | None
    max_concurrent_queries: int
    version: str | None
