"""The data sources of an admin server's routes: the rest of its process as a few callables."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from pyserve.admin.calls.store import CallStore
from pyserve.admin.gathering import NodeGathering
from pyserve.admin.histograms import Bounds
from pyserve.wire.v1 import control_pb2


@dataclass(frozen=True, slots=True)
class Described:
    """A deployment's description of its services.

    Attributes:
        application: Selected by the header of that name where several have a method.
        deployment: Its name.
        services: Full names.
        files: Serialized FileDescriptorProtos.
        prefixes: The paths below which it takes plain HTTP.
    """

    application: str
    deployment: str
    services: tuple[str, ...]
    files: tuple[bytes, ...]
    prefixes: tuple[str, ...] = ()

    @property
    def target(self) -> str:
        """The same as "application/Deployment"."""
        return f"{self.application}/{self.deployment}"


@dataclass(frozen=True, slots=True)
class Door:
    """The address of this process's ingress.

    Attributes:
        address: ``host:port``.
        speaks_tls: Clients have to speak TLS.
    """

    address: str
    speaks_tls: bool


class Front(Protocol):
    """The ingress of an admin server's process, as that server sees it."""

    def described(self) -> Sequence[Described]:
        """Return what is deployed, with descriptors."""

    def door(self) -> Door | None:
        """Return where it listens; ``None``: it does not."""

    def models(self) -> Mapping[str, tuple[str, ...]]:
        """Return the models that replicas have, as far as its router knows, by their ids."""

    def replicas_of(self, target: str) -> Sequence[str]:
        """Return ids of the replicas of "application/Deployment" that its router knows."""

    def kept_calls(self) -> CallStore:
        """Return the finished calls kept since the ingress started."""

    def take_calls(self) -> None:
        """Take in the waiting records."""

    async def delays_of(self, target: str, replica_id: str, request_id: str) -> Mapping[str, Any]:
        """Ask a replica what a call waited for there, see ``pyserve.observe.delays``.

        Raises:
            ConnectionError: It does not answer.
        """

    async def document_of(self, target: str, replica_id: str) -> Mapping[str, Any]:
        """Ask a replica for the OpenAPI document of its deployment's plain HTTP.

        Its paths are below the route prefix.

        Raises:
            ConnectionError: It does not answer.
        """


@dataclass(frozen=True, kw_only=True)
class AdminContext:
    """The sources of data for the routes.

    Attributes:
        gathering: What the processes of this node have counted.
        status: Returns the state of the mesh; ``None``: this process knows of itself only.
        front: The ingress of this process; ``None``: it has none, and shows no page.
        speaks_tls: Admin servers of the mesh that are not on loopback speak TLS.
        bounds: Which buckets ``/metrics`` has.
        tries: Methods may be called from the page.
    """

    gathering: NodeGathering
    status: Callable[[], Awaitable[control_pb2.StatusReply]] | None = None
    front: Front | None = None
    speaks_tls: bool = False
    bounds: Bounds = field(default_factory=dict)
    tries: bool = False
