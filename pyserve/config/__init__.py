"""Validated settings, and the only reader of the process environment."""

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
    "DeploymentOptions",
    "RequestRouterConfig",
    "Resources",
    "check_name",
]
