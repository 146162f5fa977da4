"""Validated settings, and the only reader of the process environment."""

from pyserve.config.environment import (
    CallSettings,
    ConcurrencySettings,
    MeshSettings,
    NodeSettings,
    check_address,
    inherited_environment,
    read_call_settings,
    read_settings,
)
from pyserve.config.options import DeploymentOptions, check_name
from pyserve.config.parts import (
    AutoscalingConfig,
    BatchingConfig,
    RequestRouterConfig,
    Resources,
)

__all__ = [
    "AutoscalingConfig",
    "BatchingConfig",
    "CallSettings",
    "ConcurrencySettings",
    "DeploymentOptions",
    "MeshSettings",
    "NodeSettings",
    "RequestRouterConfig",
    "Resources",
    "check_address",
    "check_name",
    "inherited_environment",
    "read_call_settings",
    "read_settings",
]
