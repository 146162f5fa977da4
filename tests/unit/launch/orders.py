"""What launchers are asked to start."""

from __future__ import annotations

from typing import Any

from pyserve.config import DeploymentOptions
from pyserve.launch import Gang, ReplicaOrder
from pyserve.types import ApplicationName, DeploymentKey, DeploymentName, ReplicaId

ECHO = ReplicaId("Echo#abcde")


def order(
    name: str = ECHO, gang: Gang | None = None, version: str = "1a2b3c4d.3", **options: Any
) -> ReplicaOrder:
    """Return what one replica is started for."""
    made = DeploymentOptions.of(options)
    return ReplicaOrder(
        replica_id=ReplicaId(name),
        key=DeploymentKey(ApplicationName("shop"), DeploymentName("Echo")),
        sys_path=(),
        working_directory="/driver",
        environment=made.env_vars,
        resources=made.resources,
        requirements=tuple(made.pip),
        options=made,
        gang=gang,
        version=version,
    )
