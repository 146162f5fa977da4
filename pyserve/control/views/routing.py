"""The routing settings of one deployment for routers. Pure."""

from __future__ import annotations

from pyserve.config import DEFAULT_POLICY, RequestRouterConfig
from pyserve.config.routing import STATUS_CODES, policy_kwargs_json
from pyserve.wire.v1 import mesh_pb2


def router_settings(
    config: RequestRouterConfig, sys_path: tuple[str, ...]
) -> mesh_pb2.RouterSettings:
    """Return the settings as they travel; what the deployment leaves out stays unset.

    Args:
        config: the deployment's.
        sys_path: where the driver finds modules; for a policy that is a class of the user's.
    """
    # A router of a neighbouring release may not know our default, and takes its own.
    is_unset = config.policy_path or config.policy == DEFAULT_POLICY
    settings = mesh_pb2.RouterSettings(
        policy="" if is_unset else config.policy,
        load_bound=config.load_bound,
        prefer_node=config.prefer_local_node,
        prefer_zone=config.prefer_local_zone,
        initial_backoff_s=config.initial_backoff_s,
        backoff_multiplier=config.backoff_multiplier,
        max_backoff_s=config.max_backoff_s,
        slow_start_s=config.slow_start_s,
        retry_attempts_max=config.max_attempts,
        retry_budget_percent=config.retry_budget_percent,
        hedging=config.hedging,
        ejection_fall=config.ejection_fall,
        ejection_rise=config.ejection_rise,
        ejection_interval_s=config.ejection_interval_s,
        retry_codes=[STATUS_CODES.index(name) + 1 for name in config.retryable_status_codes],
    )
    if config.policy_path:
        settings.policy_class.CopyFrom(
            mesh_pb2.PolicyClass(
                import_path=config.policy_path,
                kwargs_json=policy_kwargs_json(config),
                sys_path=sys_path,
            )
        )
    return settings
