"""Follows the registry of a controller: a pure view, and the client that keeps it up to date."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Collection

from pyserve.aio import Channel
from pyserve.aio.mesh_channel import dial
from pyserve.config import NodeSettings
from pyserve.config.control import (
    REDIAL_BACKOFF_FACTOR,
    REDIAL_BACKOFF_INITIAL_S,
    REDIAL_BACKOFF_MAX_S,
)
from pyserve.control.discovery import MeshAddress
from pyserve.control.transport import RpcError, proof
from pyserve.types import ApplicationName, DeploymentKey, DeploymentName
from pyserve.version import version
from pyserve.wire.v1 import mesh_pb2, mesh_pb2_grpc

_LOGGER = logging.getLogger(__name__)

Views = dict[DeploymentKey, mesh_pb2.DeploymentView]


class ViewState:
    """What is known of the mesh, and from which version of the registry.

    Attributes:
        version: of the last update; 0 before the first one.
        views: one per deployment.
    """

    def __init__(self) -> None:
        self.version = 0
        self.views: Views = {}

    def apply(self, update: mesh_pb2.WatchUpdate) -> bool:
        """Take one update; return ``False``, unchanged, if it does not follow the last one."""
        if update.base_version == 0:
            self.views = {}
        elif update.base_version != self.version:
            return False
        for view in update.changed:
            self.views[_key(view.key)] = view
        for key in update.removed:
            self.views.pop(_key(key), None)
        self.version = update.version
        return True


class Watcher:
    """Keeps a ``ViewState`` up to date until it is closed.

    A lost controller leaves the last view as it is; the watcher dials again with backoff, and
    the first snapshot of whoever answers replaces the view.

    Args:
        controller: whom to ask.
        node: where this process is.
        deployments: what to follow; None: everything.
        on_view: called in the loop's thread after each change of the view.
        connect: makes the channel to the controller's address.
    """

    def __init__(
        self,
        controller: MeshAddress,
        node: NodeSettings,
        deployments: Collection[DeploymentKey] | None,
        on_view: Callable[[ViewState], None],
        *,
        connect: Callable[[str], Channel] = dial,
    ) -> None:
        self._controller = controller
        self._connect = connect
        self._request = mesh_pb2.WatchRequest(
            node=node.node_id,
            zone=node.zone,
            all=deployments is None,
            deployments=[
                mesh_pb2.DeploymentKey(application=key.application, name=key.deployment)
                for key in deployments or ()
            ],
            version=version(),
        )
        self._on_view = on_view
        self._state = ViewState()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to watch, in a task of the running loop."""
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def close(self) -> None:
        """End the watch. Idempotent."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
            self._task = None

    async def _run(self) -> None:
        backoff_s = REDIAL_BACKOFF_INITIAL_S
        async with self._connect(self._controller.controller) as channel:
            stub = mesh_pb2_grpc.MeshStub(channel)
            while True:
                try:
                    if await self._follow(stub):
                        backoff_s = REDIAL_BACKOFF_INITIAL_S
                    ended = "the stream ended"
                except RpcError as error:
                    ended = f"{error.code().name}: {error.details()}"
                _LOGGER.warning(
                    "lost the controller at %s (%s); the last view stays",
                    self._controller.controller,
                    ended,
                )
                await asyncio.sleep(backoff_s)
                backoff_s = min(backoff_s * REDIAL_BACKOFF_FACTOR, REDIAL_BACKOFF_MAX_S)

    async def _follow(self, stub: mesh_pb2_grpc.MeshAsyncStub) -> bool:
        """Read one stream to its end or to a gap; return whether it brought anything."""
        call = stub.Watch(
            self._request, metadata=proof(self._controller.token), wait_for_ready=True
        )
        brought = False
        async for update in call:
            if not self._state.apply(update):
                _LOGGER.warning(
                    "an update for version %d came, but the view has %d; asking again",
                    update.base_version,
                    self._state.version,
                )
                call.cancel()
                return brought
            brought = True
            self._on_view(self._state)
        return brought


def _key(key: mesh_pb2.DeploymentKey) -> DeploymentKey:
    return DeploymentKey(ApplicationName(key.application), DeploymentName(key.name))
