"""``ray.serve.schema``: a mesh's YAML as pydantic models, the configurations beside it, its status.

pydantic takes a while to load, so that happens when one of the models is looked up.
``LoggingConfig`` and the other configurations do without it.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from pyserve.config import (
    AutoscalingConfig,
    AutoscalingPolicy,
    BackpressureConfig,
    ControllerOptions,
    EncodingType,
    LoggingConfig,
    ProxyLocation,
    RequestRouterConfig,
    TracingConfig,
)
from pyserve.driver.status import (
    ApplicationStatus,
    ApplicationStatusOverview,
    DeploymentStatus,
    DeploymentStatusOverview,
    DeploymentStatusTrigger,
    IngressStatus,
    MeshStatus,
    ProxyStatus,
    ReplicaState,
    ReplicaStatus,
)
from pyserve.task_consumer import CeleryAdapterConfig, TaskProcessorConfig, TaskResult
from pyserve.types import ReplicaRank

if TYPE_CHECKING:
    from pyserve.config.schema import (
        DeploymentSchema,
        HTTPOptionsSchema,
        RayActorOptionsSchema,
        ServeApplicationSchema,
        ServeDeploySchema,
        gRPCOptionsSchema,
    )
    from pyserve.driver.instance import (
        ApplicationDetails,
        DeploymentDetails,
        ProxyDetails,
        ReplicaDetails,
        ServeInstanceDetails,
    )

# As Ray Serve calls it.
ServeStatus = MeshStatus

_MODELS = {
    **dict.fromkeys(
        (
            "DeploymentSchema",
            "HTTPOptionsSchema",
            "RayActorOptionsSchema",
            "ServeApplicationSchema",
            "ServeDeploySchema",
            "gRPCOptionsSchema",
        ),
        "pyserve.config.schema",
    ),
    **dict.fromkeys(
        (
            "ApplicationDetails",
            "DeploymentDetails",
            "ProxyDetails",
            "ReplicaDetails",
            "ServeInstanceDetails",
        ),
        "pyserve.driver.instance",
    ),
}

__all__ = [
    "ApplicationDetails",
    "ApplicationStatus",
    "ApplicationStatusOverview",
    "AutoscalingConfig",
    "AutoscalingPolicy",
    "BackpressureConfig",
    "CeleryAdapterConfig",
    "ControllerOptions",
    "DeploymentDetails",
    "DeploymentSchema",
    "DeploymentStatus",
    "DeploymentStatusOverview",
    "DeploymentStatusTrigger",
    "EncodingType",
    "HTTPOptionsSchema",
    "IngressStatus",
    "LoggingConfig",
    "MeshStatus",
    "ProxyDetails",
    "ProxyLocation",
    "ProxyStatus",
    "RayActorOptionsSchema",
    "ReplicaDetails",
    "ReplicaRank",
    "ReplicaState",
    "ReplicaStatus",
    "RequestRouterConfig",
    "ServeApplicationSchema",
    "ServeDeploySchema",
    "ServeInstanceDetails",
    "ServeStatus",
    "TaskProcessorConfig",
    "TaskResult",
    "TracingConfig",
    "gRPCOptionsSchema",
]


if not TYPE_CHECKING:  # A checker knows the names, and would take any other one too.

    def __getattr__(name: str) -> object:
        if name not in _MODELS:
            from pyserve.later import absence

            raise absence(__name__, name)
        return getattr(import_module(_MODELS[name]), name)
