"""Follows the registry of a controller: a pure view, and the client that keeps it up to date.

A controller's address may change, where another one takes its place; ``Way`` says how it is found.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass
from typing import Any, Protocol

import grpc
import grpc.aio

from pyserve.aio import AioRpcError, Channel
from pyserve.aio.mesh_channel import Redial, dial, is_reached, proof
from pyserve.config import NodeSettings
from pyserve.types import ApplicationName, DeploymentKey, DeploymentName, MeshAddress
from pyserve.version import version
from pyserve.wire.v1 import mesh_pb2, mesh_pb2_grpc

_LOGGER = logging.getLogger(__name__)

WatchCall = grpc.aio.UnaryStreamCall[mesh_pb2.WatchRequest, mesh_pb2.WatchUpdate]
Views = dict[DeploymentKey, mesh_pb2.DeploymentView]


class ViewState:
    """The views of the mesh as of one version of the registry.

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
        elif update.base_version != self.version or any(
            _key(patch.key) not in self.views for patch in update.patched
        ):
            return False
        for view in update.changed:
            self.views[_key(view.key)] = view
        for patch in update.patched:
            self.views[_key(patch.key)] = _patched(self.views[_key(patch.key)], patch)
        for key in update.removed:
            self.views.pop(_key(key), None)
        self.version = update.version
        return True


@dataclass(frozen=True, kw_only=True)
class Way:
    """How a watcher comes to controllers that follow each other.

    Attributes:
        locate: returns where one is now; ``None``: nowhere. Called before each dial.
        beside: called with the channel after the first snapshot from a controller; what it does
            and the watch end together. It raises nothing but ``AioRpcError``.
    """

    locate: Callable[[], MeshAddress | None]
    beside: Callable[[Channel], Awaitable[None]]


OnView = Callable[[ViewState], None]


class Watching(Protocol):
    """Calls a function with each new view, in the loop's thread, from ``start`` to ``close``."""

    @property
    def controller(self) -> MeshAddress:
        """The controller that sends the views."""

    def start(self) -> None:
        """Begin to watch, on the running loop."""

    async def close(self) -> None:
        """End the watch. Idempotent."""


Watch = Callable[[OnView], Watching]


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
        way: to the controllers that come after this one; ``None``: they have its address.
    """

    def __init__(
        self,
        controller: MeshAddress,
        node: NodeSettings,
        deployments: Collection[DeploymentKey] | None,
        on_view: OnView,
        *,
        connect: Callable[[str], Channel] = dial,
        way: Way | None = None,
    ) -> None:
        self._way = way
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
            takes_patches=True,
        )
        self._on_view = on_view
        self._state = ViewState()
        self._task: asyncio.Task[None] | None = None

    @property
    def controller(self) -> MeshAddress:
        """Whom it follows, or tries to."""
        return self._controller

    def start(self) -> None:
        """Begin to watch, in a task of the running loop."""
        run = self._run() if self._way is None else self._run_along(self._way)
        self._task = asyncio.get_running_loop().create_task(run)

    async def close(self) -> None:
        """End the watch. Idempotent."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
            self._task = None

    async def _run(self) -> None:
        redial = Redial()
        while True:
            async with self._connect(self._controller.controller) as channel:
                await self._run_over(channel, redial)

    async def _run_over(self, channel: Channel, redial: Redial) -> None:
        """Follow over a channel again and again, until nobody answers there."""
        stub = mesh_pb2_grpc.MeshStub(channel)
        while await is_reached(channel):
            try:
                if await self._follow(stub):
                    redial.reset()
                ended = "the stream ended"
            except AioRpcError as error:
                ended = f"{error.code().name}: {error.details()}"
            _LOGGER.warning(
                "lost the controller at %s (%s); the last view stays",
                self._controller.controller,
                ended,
            )
            await redial.pause()

    async def _run_along(self, way: Way) -> None:
        redial = Redial()
        is_lost = False
        while True:
            address = way.locate()
            if address is None:
                ended = "it is not there"
            else:
                self._controller = address
                async with self._connect(address.controller) as channel:
                    brought, ended = await self._follow_beside(channel, way)
                if brought:
                    redial.reset()
                    is_lost = False
            # Once: further attempts say nothing new.
            _LOGGER.log(
                logging.DEBUG if is_lost else logging.WARNING,
                "lost the controller at %s (%s); the last view stays",
                self._controller.controller,
                ended,
            )
            is_lost = True
            await redial.pause()

    async def _follow_beside(self, channel: Channel, way: Way) -> tuple[bool, str]:
        """Watch with what goes beside; return whether a view came, and how it has ended."""
        first = asyncio.Event()

        async def attend() -> None:
            await first.wait()
            await way.beside(channel)

        async def expire() -> str:
            if await is_reached(channel):
                await asyncio.Event().wait()
            return "nobody answers"

        call = self._watch(mesh_pb2_grpc.MeshStub(channel), waits=False)
        work = (self._read(call, first.set), attend(), expire())
        tasks = [asyncio.ensure_future(each) for each in work]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
        return first.is_set(), "; ".join(map(_end_of, done))

    async def _follow(self, stub: mesh_pb2_grpc.MeshAsyncStub) -> bool:
        """Read one stream to its end or to a gap; return whether it brought anything."""
        return await self._read(self._watch(stub, waits=True), lambda: None)

    def _watch(self, stub: mesh_pb2_grpc.MeshAsyncStub, *, waits: bool) -> WatchCall:
        return stub.Watch(
            self._request, metadata=proof(self._controller.token), wait_for_ready=waits
        )

    async def _read(self, call: WatchCall, on_first: Callable[[], None]) -> bool:
        """Read a stream to its end or to a gap; return whether it brought anything."""
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
            self._on_view(self._state)
            if not brought:
                brought = True
                on_first()
        return brought


def _end_of(task: asyncio.Future[Any]) -> str:
    error = task.exception()
    if isinstance(error, AioRpcError):
        return f"{error.code().name}: {error.details()}"
    if error is not None:
        _LOGGER.error("the watch has failed", exc_info=error)
        return repr(error)
    result = task.result()
    return result if isinstance(result, str) else "a stream ended"


def _patched(view: mesh_pb2.DeploymentView, patch: mesh_pb2.ViewPatch) -> mesh_pb2.DeploymentView:
    touched = {*patch.removed, *(each.replica_id for each in patch.changed)}
    replicas = [each for each in view.replicas if each.replica_id not in touched]
    # A view that has been handed on does not change any more.
    patched = mesh_pb2.DeploymentView()
    patched.CopyFrom(view)
    del patched.replicas[:]
    patched.replicas.extend(replicas)
    patched.replicas.extend(patch.changed)
    return patched


def _key(key: mesh_pb2.DeploymentKey) -> DeploymentKey:
    return DeploymentKey(ApplicationName(key.application), DeploymentName(key.name))
