"""Validated settings, and the only reader of the process environment."""

from typing import TYPE_CHECKING

from pyserve.config.concurrency import ConcurrencySettings
from pyserve.config.environment import (
    CallSettings,
    MeshSettings,
    NodeSettings,
    change_environment,
    check_address,
    default_addresses,
    host_port,
    inherited_environment,
    older_names,
    read_call_settings,
    read_settings,
    unknown_names,
)
from pyserve.config.http import DeploymentMode, HTTPOptions, ProxyLocation, gRPCOptions
from pyserve.config.keywords import DeploymentKeywords, HandleKeywords
from pyserve.config.logging_config import ControllerOptions, LoggingConfig
from pyserve.config.logs import EncodingType, LogSettings
from pyserve.config.options import DeploymentOptions, check_name
from pyserve.config.parts import BackpressureConfig, BatchingConfig, Resources
from pyserve.config.placement import (
    DeploymentActorConfig,
    GangPlacementStrategy,
    GangRuntimeFailurePolicy,
    GangSchedulingConfig,
)
from pyserve.config.proxies import is_everywhere, is_loopback, local_host
from pyserve.config.routing import (
    DEFAULT_LOAD_BOUND,
    DEFAULT_POLICY,
    RequestRouterConfig,
    RouterDefaults,
)
from pyserve.config.scaling import (
    AggregationFunction,
    AutoscalingConfig,
    AutoscalingContext,
    AutoscalingPolicy,
    DeploymentID,
    TimeStampedValue,
)
from pyserve.config.telemetry import TracingConfig, TracingSettings

__all__ = [
    "DEFAULT_LOAD_BOUND",
    "DEFAULT_POLICY",
    "AggregationFunction",
    "AutoscalingConfig",
    "AutoscalingContext",
    "AutoscalingPolicy",
    "BackpressureConfig",
    "BatchingConfig",
    "CallSettings",
    "ConcurrencySettings",
    "ControllerOptions",
    "DeploymentActorConfig",
    "DeploymentID",
    "DeploymentKeywords",
    "DeploymentMode",
    "DeploymentOptions",
    "EncodingType",
    "GangPlacementStrategy",
    "GangRuntimeFailurePolicy",
    "GangSchedulingConfig",
    "HTTPOptions",
    "HandleKeywords",
    "LogSettings",
    "LoggingConfig",
    "MeshSettings",
    "NodeSettings",
    "ProxyLocation",
    "RequestRouterConfig",
    "Resources",
    "RouterDefaults",
    "TimeStampedValue",
    "TracingConfig",
    "TracingSettings",
    "change_environment",
    "check_address",
    "check_name",
    "default_addresses",
    "gRPCOptions",
    "host_port",
    "inherited_environment",
    "is_everywhere",
    "is_loopback",
    "local_host",
    "older_names",
    "read_call_settings",
    "read_settings",
    "unknown_names",
]

if not TYPE_CHECKING:  # A checker knows the names, and would take any other one too.

    def __getattr__(name: str) -> object:
        from pyserve.later import absence

        raise absence(__name__, name)
