"""``ray.serve.schema``: a mesh's YAML as pydantic models, the configurations beside it, its status.

pydantic takes a while to load, so that happens when one of the models is looked up.
``LoggingConfig`` and the other configurations do without it.
"""

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

# As Ray Serve calls it.
ServeStatus = MeshStatus

_MODELS = (
    "DeploymentSchema",
    "HTTPOptionsSchema",
    "RayActorOptionsSchema",
    "ServeApplicationSchema",
    "ServeDeploySchema",
    "gRPCOptionsSchema",
)

__all__ = [
    "ApplicationStatus",
    "ApplicationStatusOverview",
    "AutoscalingConfig",
    "AutoscalingPolicy",
    "BackpressureConfig",
    "CeleryAdapterConfig",
    "ControllerOptions",
    "DeploymentSchema",
    "DeploymentStatus",
    "DeploymentStatusOverview",
    "DeploymentStatusTrigger",
    "EncodingType",
    "HTTPOptionsSchema",
    "IngressStatus",
    "LoggingConfig",
    "MeshStatus",
    "ProxyLocation",
    "ProxyStatus",
    "RayActorOptionsSchema",
    "ReplicaRank",
    "ReplicaState",
    "ReplicaStatus",
    "RequestRouterConfig",
    "ServeApplicationSchema",
    "ServeDeploySchema",
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
        from pyserve.config import schema

        return getattr(schema, name)
