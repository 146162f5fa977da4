"""The stream on which a separate ingress reports to the controller and receives its requests.

It runs together with the watch of the view and ends with it, so the versions that the controller
asks for are those of that view.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable

import grpc
import grpc.aio

from pyserve.aio import Channel
from pyserve.aio.mesh_channel import proof
from pyserve.control.server.transport import RpcError
from pyserve.gateway.ingress import IngressServer
from pyserve.wire.v1 import control_pb2, ingress_pb2, ingress_pb2_grpc

_LOGGER = logging.getLogger(__name__)
# The controller gives up asking after ten seconds; nobody needs an answer that comes later.
_SHOW_TIMEOUT_S = 10.0
# Commands under way. The controller queues at most 64, and more only where views do not come.
_UNDER_WAY_MAX = 256
# How long a controller may take to show that it knows the addresses; an earlier one never does.
_CONFIRMED_TIMEOUT_S = 3.0
# How long the last word may take to reach a controller; it is on this machine or close by.
_FAREWELL_TIMEOUT_S = 2.0

AttendCall = grpc.aio.StreamStreamCall[ingress_pb2.IngressMessage, ingress_pb2.IngressCommand]


class IngressRegistration:
    """What an ingress says to the controller that it follows.

    Args:
        token: of the mesh.
        ingress: to speak for.
        on_mesh_end: called with the grace in seconds when the mesh ends; returns the drain.
    """

    def __init__(
        self,
        token: bytes,
        ingress: IngressServer,
        on_mesh_end: Callable[[float], asyncio.Task[None]],
    ) -> None:
        self._token = token
        self._ingress = ingress
        self._on_mesh_end = on_mesh_end
        self._call: AttendCall | None = None  # The stream that stands, if one does.
        self._write_lock = asyncio.Lock()  # One write at a time.
        self._under_way: set[asyncio.Task[None]] = set()
        self._changed = asyncio.Event()
        self._is_told = asyncio.Event()
        self._is_known = asyncio.Event()
        self._is_finishing = False
        self._has_left = asyncio.Event()
        ingress.on_state = self._changed.set

    async def wait_known(self, timeout_s: float) -> None:
        """Wait until a controller knows that this ingress takes calls.

        A controller of an earlier version does not confirm it; then a sent report is enough.

        Raises:
            TimeoutError: No report could be sent in time.
        """
        async with asyncio.timeout(timeout_s):
            await self._is_told.wait()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_CONFIRMED_TIMEOUT_S):
                await self._is_known.wait()

    async def attend(self, channel: Channel) -> None:
        """Serve one stream, and return when it ends.

        If ``finish`` closes it, or the controller does not have the method, wait until cancelled.

        Raises:
            RpcError: it broke, or was refused.
        """
        try:
            await self._attend(channel)
        except RpcError as error:
            if error.code() is not grpc.StatusCode.UNIMPLEMENTED:
                raise
            _LOGGER.warning(
                "the controller is of an older version, whose status does not show this ingress"
            )
            self._is_told.set()
            self._is_known.set()
        else:
            if not self._is_finishing:
                return
            self._has_left.set()
        await asyncio.Event().wait()  # Until it is cancelled: the watch goes on without a stream.

    async def _attend(self, channel: Channel) -> None:
        stub: ingress_pb2_grpc.IngressesAsyncStub = ingress_pb2_grpc.IngressesStub(channel)
        call = self._call = stub.Attend(metadata=proof(self._token))
        self._changed.clear()
        await self._say(call, 0)
        telling = asyncio.create_task(self._tell_changes(call))
        try:
            async for command in call:
                if len(self._under_way) >= _UNDER_WAY_MAX:
                    _LOGGER.error("%d commands of the controller are under way", _UNDER_WAY_MAX)
                    return
                task = asyncio.create_task(self._carry_out(call, command))
                self._under_way.add(task)
                task.add_done_callback(self._under_way.discard)
        finally:
            self._call = None
            call.cancel()
            tasks = [telling, *self._under_way]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def finish(self) -> None:
        """Send the last word and close the stream in order, within a bounded time."""
        self._is_finishing = True
        call = self._call
        if call is None:
            return
        with contextlib.suppress(RpcError, asyncio.InvalidStateError, TimeoutError):
            async with asyncio.timeout(_FAREWELL_TIMEOUT_S):
                if self._under_way:
                    await asyncio.wait(self._under_way)
                await self._say(call, 0)
                # The controller ends its side once it has read everything.
                await call.done_writing()
                await self._has_left.wait()

    async def _tell_changes(self, call: AttendCall) -> None:
        while True:
            await self._changed.wait()
            self._changed.clear()
            await self._say(call, 0)

    async def _carry_out(self, call: AttendCall, command: ingress_pb2.IngressCommand) -> None:
        match command.WhichOneof("kind"):
            case "look":
                async with self._write_lock:  # What it looks at may still be being written.
                    if self._is_told.is_set():
                        self._is_known.set()
            case "show":
                try:
                    await self._ingress.show(command.show.version, _SHOW_TIMEOUT_S)
                except TimeoutError:
                    return  # The controller has not waited for longer, and says so.
            case "settings":
                self._ingress.set_request_timeout(command.settings.request_timeout_s or None)
            case "drain":
                # Shielded: it goes on when the controller goes.
                await asyncio.shield(self._on_mesh_end(command.drain.grace_s))
        await self._say(call, command.number)

    async def _say(self, call: AttendCall, answers: int) -> None:
        """Tell how it is; a stream that has broken ends by itself."""
        status: control_pb2.IngressStatus = self._ingress.status()
        async with self._write_lock:
            try:
                await call.write(ingress_pb2.IngressMessage(answers=answers, status=status))
            except (RpcError, asyncio.InvalidStateError):
                return
        if status.addresses:
            self._is_told.set()
