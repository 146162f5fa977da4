"""A reference to a deployment that may be copied, pickled and passed to other deployments."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyserve.api.context import attached
from pyserve.types import ApplicationName, DeploymentKey, DeploymentName

if TYPE_CHECKING:
    import grpc.aio


class DeploymentHandle:
    """Names one deployment of the mesh that this process is in.

    Making one costs nothing: the mesh is looked up when the handle is used, and all handles of
    a process share its routers.
    """

    __slots__ = ("_key",)

    def __init__(self, deployment_name: str, app_name: str) -> None:
        self._key = DeploymentKey(ApplicationName(app_name), DeploymentName(deployment_name))

    @property
    def deployment_name(self) -> str:
        """The deployment's name, unique in its application."""
        return self._key.deployment

    @property
    def app_name(self) -> str:
        """The application's name."""
        return self._key.application

    def channel(self) -> grpc.aio.Channel:
        """Return a channel for generated stubs, with the interface of ``grpc.aio.Channel``.

        Its calls take the way of the ingress, but in this process: pick a replica, wait for a
        free slot, send. Use it from one event loop, and close it when done.

        Raises:
            MeshNotFound: This process is in no mesh.
        """
        return attached().open_channel(self._key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, DeploymentHandle) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)

    def __reduce__(self) -> tuple[type[DeploymentHandle], tuple[str, str]]:
        return DeploymentHandle, (self._key.deployment, self._key.application)

    def __repr__(self) -> str:
        return f"DeploymentHandle({self.deployment_name!r}, app_name={self.app_name!r})"
