"""What ``GET /api/serve/applications/`` answers as pydantic models, with the names of Ray Serve.

Fields that only a later release knows are kept, so that both neighbours can be asked.
"""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from pyserve.config.schema import DeploymentSchema, ServeApplicationSchema
from pyserve.driver.status import ApplicationStatus, DeploymentStatus, ProxyStatus, ReplicaState


class _Told(BaseModel):
    model_config = ConfigDict(extra="allow", protected_namespaces=())


class ReplicaDetails(_Told):
    """One replica."""

    replica_id: str
    state: ReplicaState
    pid: int | None = None
    node_id: str | None = None


class DeploymentDetails(_Told):
    """One deployment, with the options that act."""

    name: str
    status: DeploymentStatus
    message: str
    deployment_config: DeploymentSchema | dict[str, Any]
    target_num_replicas: int
    replicas: list[ReplicaDetails]


class ApplicationDetails(_Told):
    """One application; ``deployed_app_config`` is what a file said of it."""

    name: str
    route_prefix: str | None
    docs_path: str | None = None
    status: ApplicationStatus
    message: str
    last_deployed_time_s: float
    deployed_app_config: ServeApplicationSchema | dict[str, Any] | None = None
    source: str
    deployments: dict[str, DeploymentDetails] = Field(default_factory=dict)


class ProxyDetails(_Told):
    """One ingress."""

    node_id: str
    status: ProxyStatus


class ServeInstanceDetails(_Told):
    """A mesh: ``ServeInstanceDetails(**response.json())``."""

    controller_info: dict[str, Any] = Field(default_factory=dict)
    proxy_location: str | None = None
    http_options: dict[str, Any] | None = None
    proxies: dict[str, ProxyDetails] = Field(default_factory=dict)
    applications: dict[str, ApplicationDetails] = Field(default_factory=dict)
    target_capacity: float | None = None

    @staticmethod
    def get_empty_schema_dict() -> dict[str, Any]:
        """Return what a mesh without applications is at least."""
        return {"controller_info": {}, "proxies": {}, "applications": {}, "target_capacity": None}
