"""Identifiers that cross module borders, so that no bare string does."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NewType

ApplicationName = NewType("ApplicationName", str)
DeploymentName = NewType("DeploymentName", str)
ReplicaId = NewType("ReplicaId", str)
ServiceName = NewType("ServiceName", str)
"""Full name of a gRPC service, ``pkg.Service``."""

MODEL_ATTRIBUTE = "__pyserve_model__"
"""What ``pyserve.inference.model`` leaves on a class; here, so that one can look without numpy."""


@dataclass(frozen=True, slots=True)
class DeploymentKey:
    """A deployment's place in a mesh: names are unique within their application."""

    application: ApplicationName
    deployment: DeploymentName

    def __str__(self) -> str:
        return f"{self.application}/{self.deployment}"
