"""The values of ``pyserve.status()`` under the module name that Ray Serve uses."""

from pyserve.driver.status import (
    ApplicationStatus,
    ApplicationStatusOverview,
    DeploymentStatus,
    DeploymentStatusOverview,
    IngressStatus,
    MeshStatus,
    ProxyStatus,
    ReplicaState,
    ReplicaStatus,
)

# As Ray Serve calls it.
ServeStatus = MeshStatus

__all__ = [
    "ApplicationStatus",
    "ApplicationStatusOverview",
    "DeploymentStatus",
    "DeploymentStatusOverview",
    "IngressStatus",
    "MeshStatus",
    "ProxyStatus",
    "ReplicaState",
    "ReplicaStatus",
    "ServeStatus",
]
