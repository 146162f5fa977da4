"""Reports to the controller how many calls wait for deployments that scale with the load."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Mapping

from pyserve.aio import AioRpcError, Channel
from pyserve.aio.mesh_channel import Redial, proof
from pyserve.routing.watcher import Views
from pyserve.types import DeploymentKey, MeshAddress
from pyserve.wire.v1 import mesh_pb2, mesh_pb2_grpc

_LOGGER = logging.getLogger(__name__)
# The first while calls come or a deployment has no replica, the second otherwise.
_BUSY_PERIOD_S, _IDLE_PERIOD_S = 0.1, 0.25
_IDLE_AFTER_S = 10.0

Stats = Mapping[str, Mapping[str, object]]


class LoadPublisher:
    """Follows the table's own counters as long as a deployment scales.

    Args:
        locate: Returns the controller that sent the last view, which gets the reports.
        connect: Makes the channel to the controller's address.
        stats: Returns ``rust.RoutingTable.stats()``.
    """

    def __init__(
        self,
        locate: Callable[[], MeshAddress],
        connect: Callable[[str], Channel],
        stats: Callable[[], Stats],
    ) -> None:
        self._locate = locate
        self._controller: MeshAddress | None = None
        self._connect = connect
        self._stats = stats
        self._keys: dict[DeploymentKey, bool] = {}  # Whether it has replicas.
        self._task: asyncio.Task[None] | None = None

    def follow(self, views: Views) -> None:
        """Report on those deployments of the views that scale; from the running loop."""
        self._keys = {
            key: bool(view.replicas) for key, view in views.items() if view.scales_with_load
        }
        controller = self._locate()
        if self._keys and controller != self._controller:
            self._controller = controller
            if self._task is not None:
                self._task.cancel()
            self._task = asyncio.create_task(self._tell(controller, self._task))

    async def close(self) -> None:
        """Stop reporting. Idempotent."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})
            self._task = self._controller = None

    async def _tell(self, controller: MeshAddress, before: asyncio.Task[None] | None) -> None:
        if before is not None:
            await asyncio.wait({before})
        redial = Redial()
        async with self._connect(controller.controller) as channel:
            stub = mesh_pb2_grpc.MeshStub(channel)
            while True:
                # The receiver of a new stream knows nothing of earlier reports.
                changes = LoadChanges()
                try:
                    await stub.Observe(
                        self._loads(changes),
                        metadata=proof(controller.token),
                        wait_for_ready=True,
                    )
                except AioRpcError as error:
                    # The watcher of the same controller says that it is lost.
                    _LOGGER.debug("the controller does not hear of the load: %s", error.details())
                if changes.has_told:
                    redial.reset()
                await redial.pause()

    async def _loads(self, changes: LoadChanges) -> AsyncIterator[mesh_pb2.RouterLoad]:
        loop = asyncio.get_running_loop()
        active_at = loop.time()
        while True:
            if self._keys and (load := changes.look(self._keys, self._stats())) is not None:
                active_at = loop.time()
                yield load
            is_idle = loop.time() - active_at > _IDLE_AFTER_S and all(self._keys.values())
            await asyncio.sleep(_IDLE_PERIOD_S if is_idle else _BUSY_PERIOD_S)


class LoadChanges:
    """Finds what has changed since the last report. Pure."""

    def __init__(self) -> None:
        self._told: dict[DeploymentKey, tuple[int, int]] = {}

    @property
    def has_told(self) -> bool:
        """Whether anything has been reported."""
        return bool(self._told)

    def look(self, keys: Mapping[DeploymentKey, bool], stats: Stats) -> mesh_pb2.RouterLoad | None:
        """Return the report on these deployments; ``None`` if nothing has changed."""
        changed = []
        for key in keys:
            found = stats.get(str(key))
            if found is None:
                continue
            parked, offered = found["parked"], found["offered"]
            assert isinstance(parked, int), "a number of calls"
            assert isinstance(offered, int), "a number of calls"
            if self._told.get(key, (0, 0)) != (parked, offered):
                self._told[key] = parked, offered
                changed.append(
                    mesh_pb2.DeploymentLoad(
                        key=mesh_pb2.DeploymentKey(
                            application=key.application, name=key.deployment
                        ),
                        parked=parked,
                        offered=offered,
                    )
                )
        for gone in self._told.keys() - keys.keys():
            del self._told[gone]
        return mesh_pb2.RouterLoad(deployments=changed) if changed else None
