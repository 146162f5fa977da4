"""Follows a mesh, and hands on each configuration of HAProxy that differs from the last one."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable
from functools import partial

from pyserve.aio.certificates import MeshTls
from pyserve.aio.mesh_channel import dial, proof
from pyserve.config import NodeSettings
from pyserve.control.server.transport import RpcError
from pyserve.errors import MeshError, MeshUnavailable, PyserveError
from pyserve.gateway.haproxy.ingresses import Ingresses
from pyserve.gateway.haproxy.options import HaproxyOptions
from pyserve.gateway.haproxy.text import configuration
from pyserve.routing.watcher import Views, ViewState, Watcher
from pyserve.types import MeshAddress
from pyserve.wire.v1 import control_pb2, control_pb2_grpc

_LOGGER = logging.getLogger(__name__)
# A controller answers in milliseconds; ten seconds cover one that is swapped out.
_ANSWER_TIMEOUT_S = 10.0
# A restarted controller has another address or token, and nothing announces that.
_LOOK_INTERVAL_S = 1.0
# Views do not show whether an ingress has been added or removed.
_REFRESH_S = 5.0


class Follower:
    """Keeps a configuration current until it is cancelled.

    Args:
        find: returns where the mesh is, ``None`` if it is nowhere at the moment. It may block.
        node: where this process is.
        tls: certificates for a controller at ``host:port``.
        options: what the configuration says besides.
        put: takes a text that differs from the last one that it took. It may block; after a
            ``MeshError`` of it the same text comes again.
        interval_s: the shortest time between two texts; what changes meanwhile comes as one.
    """

    def __init__(
        self,
        find: Callable[[], MeshAddress | None],
        node: NodeSettings,
        tls: MeshTls | None,
        options: HaproxyOptions,
        put: Callable[[str], None],
        *,
        interval_s: float,
    ) -> None:
        self._find = find
        self._node = node
        self._connect = partial(dial, tls=tls)
        self._options = options
        self._put = put
        self._interval_s = interval_s
        self._ingresses = Ingresses()
        self._last = ""
        self._said = ""

    async def run(self) -> None:
        """Follow the mesh, and then each mesh that replaces it, until cancelled."""
        while True:
            address = await self._look()
            if address is not None:
                await self._follow(address)
            await asyncio.sleep(_LOOK_INTERVAL_S)

    async def first(self) -> str:
        """Return the text for the present state of the mesh.

        Raises:
            MeshUnavailable: the controller does not answer.
            MeshError: it cannot be found, or something of it cannot be in a configuration.
        """
        address = await asyncio.to_thread(self._find)
        if address is None:
            raise MeshUnavailable("no mesh runs here")
        news = asyncio.Event()
        watched: list[ViewState] = []
        watcher = self._watcher(address, watched, news)
        try:
            async with asyncio.timeout(_ANSWER_TIMEOUT_S):
                await news.wait()
                return await self._text(address, watched[-1].views)
        except (TimeoutError, RpcError) as error:
            raise MeshUnavailable(
                f"the controller at {address.controller} does not answer; look whether it runs "
                f"with `pyserve status`"
            ) from error
        finally:
            await watcher.close()

    def _watcher(
        self, address: MeshAddress, watched: list[ViewState], news: asyncio.Event
    ) -> Watcher:
        def on_view(state: ViewState) -> None:
            watched[:] = [state]
            news.set()

        watcher = Watcher(address, self._node, None, on_view, connect=self._connect)
        watcher.start()
        return watcher

    async def _follow(self, address: MeshAddress) -> None:
        """Follow one controller until another one is where it was."""
        news = asyncio.Event()
        watched: list[ViewState] = []
        watcher = self._watcher(address, watched, news)
        loop = asyncio.get_running_loop()
        refresh_at = math.inf
        try:
            while True:
                try:
                    async with asyncio.timeout(_LOOK_INTERVAL_S):
                        await news.wait()
                except TimeoutError:
                    if await self._has_moved(address):
                        return
                    if loop.time() < refresh_at:
                        continue
                news.clear()
                refresh_at = loop.time() + _REFRESH_S
                if not await self._update(address, watched[-1].views):
                    if await self._has_moved(address):
                        return
                    news.set()
                await asyncio.sleep(self._interval_s)
        finally:
            await watcher.close()

    async def _update(self, address: MeshAddress, views: Views) -> bool:
        """Hand on what the mesh is now; return whether that has been done."""
        try:
            text = await self._text(address, views)
            if text != self._last:
                await asyncio.to_thread(self._put, text)
                self._last = text
        except RpcError as error:
            self._say(f"the controller does not answer: {error.code().name}: {error.details()}")
            return False
        except MeshError as error:
            self._say(str(error))
            return False
        self._said = ""
        return True

    async def _text(self, address: MeshAddress, views: Views) -> str:
        async with self._connect(address.controller) as channel:
            stub = control_pb2_grpc.ControlStub(channel)
            reply: control_pb2.StatusReply = await stub.Status(
                control_pb2.StatusRequest(),
                metadata=proof(address.token),
                timeout=_ANSWER_TIMEOUT_S,
            )
        try:
            now = asyncio.get_running_loop().time()
            place = self._ingresses.place(reply, address.controller, now)
            # Others change it while this is made.
            return configuration(list(views.values()), place, self._options)
        except ValueError as error:
            raise MeshError(f"the configuration of HAProxy cannot be written: {error}") from error

    async def _has_moved(self, address: MeshAddress) -> bool:
        found = await self._look()
        return found is not None and found != address

    async def _look(self) -> MeshAddress | None:
        try:
            return await asyncio.to_thread(self._find)
        except PyserveError as error:
            self._say(str(error))
            return None

    def _say(self, text: str) -> None:
        """Log what is wrong, once for as long as it is the same."""
        if text != self._said:
            self._said = text
            _LOGGER.warning("%s; the configuration stays as it is until that has changed", text)
