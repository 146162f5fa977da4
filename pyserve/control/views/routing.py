"""The routing settings of one deployment for routers. Pure."""

from __future__ import annotations

from pyserve.config import DEFAULT_POLICY, RequestRouterConfig
from pyserve.config.routing import OPTIONS, STATUS_CODES, policy_kwargs_json
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
        retry_codes=[STATUS_CODES.index(name) + 1 for name in config.retryable_status_codes],
    )
    for name, option in OPTIONS.items():
        value = getattr(config, name)
        if not option.is_of_router or value is None:
            continue
        if (field := option.wire or name) in settings.DESCRIPTOR.fields_by_name:
            setattr(settings, field, value)
        else:
            settings.options[name] = value
    if config.policy_path:
        settings.policy_class.CopyFrom(
            mesh_pb2.PolicyClass(
                import_path=config.policy_path,
                kwargs_json=policy_kwargs_json(config),
                sys_path=sys_path,
            )
        )
    return settings
