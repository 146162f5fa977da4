"""Makes the admin server of a process: its listener, its address, and the HTTP server behind it."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import socket
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from pyserve.admin.context import AdminContext, Front
from pyserve.admin.gathering import NodeGathering
from pyserve.admin.histograms import bounds_of, others_taken
from pyserve.config import MeshSettings, NodeSettings, host_port, is_everywhere, is_loopback
from pyserve.config.telemetry import MODEL_BUCKETS, REQUEST_BUCKETS, MetricsSettings
from pyserve.errors import MeshError
from pyserve.loop_thread import LoopThread
from pyserve.observe.metrics import ProcessMetrics
from pyserve.replica.endpoints import advertised_host
from pyserve.wire.v1 import control_pb2

if TYPE_CHECKING:
    from pyserve.config.tls import TlsFiles
    from pyserve.side_http import SideServer


_LOGGER = logging.getLogger(__name__)
_BACKLOG = 64


class AdminServer:
    """Listens from ``start`` to ``close``.

    Args:
        admin_context: What its routes ask.
        host: Where it listens.
        port: The same; another one if it is taken, 0: any.
        token: Of the mesh; clients that are not on loopback have to send it, or the key made of it.
        tls: Certificates, for clients that are not on loopback; None: plain text.
        is_guarded: Clients on loopback have to send one of them too.
        takes_plain_token: The token is accepted in plain text from other machines too.

    Attributes:
        address: ``host:port`` where it listens; "" before.
    """

    def __init__(
        self,
        admin_context: AdminContext,
        *,
        host: str,
        port: int,
        token: bytes,
        tls: TlsFiles | None = None,
        is_guarded: bool = False,
        takes_plain_token: bool = False,
    ) -> None:
        self.address = ""
        self._admin_context = admin_context
        self._host = host.strip("[]")
        self._port = port
        self._token = token
        self._is_guarded = is_guarded
        self._tls = None if is_loopback(host) else tls
        self._is_private = takes_plain_token or self._tls is not None
        self._listener: socket.socket | None = None
        self._server: SideServer | None = None
        self._beginning: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Listen from now on.

        Raises:
            MeshError: The host is not an address of this machine.
        """
        self._listener = self._listen()
        self._listener.setblocking(False)
        self.address = host_port(self._host, self._listener.getsockname()[1])
        asyncio.get_running_loop().add_reader(self._listener, self._on_first)

    def _listen(self) -> socket.socket:
        family = socket.AF_INET6 if ":" in self._host else socket.AF_INET
        try:
            try:
                return socket.create_server(
                    (self._host, self._port), family=family, backlog=_BACKLOG
                )
            except OSError as error:
                if error.errno not in (errno.EADDRINUSE, errno.EACCES):
                    raise
                # Most likely another mesh of this machine has the port; serve at a free one.
                listener = socket.create_server((self._host, 0), family=family, backlog=_BACKLOG)
        except OSError as error:
            raise MeshError(
                f"metrics cannot be shown at {host_port(self._host, self._port)}: "
                f"{error.strerror}; set PYSERVE_BIND_HOST to an address of this machine, or "
                f"PYSERVE_METRICS_PORT=off"
            ) from error
        _LOGGER.info(
            "port %d is taken, so metrics are at %s; PYSERVE_METRICS_PORT names another port",
            self._port,
            host_port(self._host, listener.getsockname()[1]),
        )
        return listener

    def _on_first(self) -> None:
        """Load the HTTP server for the first client: only now it is worth its memory."""
        assert self._listener is not None, "it listens"
        asyncio.get_running_loop().remove_reader(self._listener)
        self._beginning = asyncio.create_task(self._begin(self._listener))
        self._beginning.add_done_callback(_log_failure)

    async def _begin(self, listener: socket.socket) -> None:
        # Imports take a fifth of a second, which must not block the loop.
        self._server = await asyncio.to_thread(self._make, listener)
        self._server.start()

    def _make(self, listener: socket.socket) -> SideServer:
        from pyserve.admin.application import make_application
        from pyserve.side_http import SideServer

        application = make_application(
            self._admin_context,
            self._token,
            is_guarded=self._is_guarded,
            is_private=self._is_private,
        )
        return SideServer(application, listener, tls=self._tls)

    async def close(self) -> None:
        """Accept nothing more, and give current requests a moment to end. Idempotent."""
        listener, self._listener = self._listener, None
        if listener is None:
            return
        if self._beginning is None:
            asyncio.get_running_loop().remove_reader(listener)
        else:
            await asyncio.wait([self._beginning])
        if self._server is not None:
            await self._server.close()
        listener.close()
        self._admin_context.gathering.close()


def _log_failure(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()):
        _LOGGER.error("the admin server has ended", exc_info=error)


# Where an admin server listens, and the address it gives to others.

_LOOPBACK = "127.0.0.1"


def listening_host(node: NodeSettings) -> str:
    """Return the host to listen on: loopback, unless this node is told to listen elsewhere."""
    return node.bind_host or _LOOPBACK


def advertised_address(node: NodeSettings, bound: str, reached_at: str = "") -> str:
    """Return the ``host:port`` at which others reach a socket bound to ``bound``.

    Args:
        node: Of this process.
        bound: ``host:port``.
        reached_at: The host by which other processes of the mesh reach this one, if it is known.
    """
    host, _, port = bound.rpartition(":")
    if node.advertise_host is not None:
        host = node.advertise_host
    elif is_everywhere(host):
        # This node's own name is the best guess if no other is given.
        is_known = reached_at and not is_loopback(reached_at)
        host = reached_at if is_known else node.node_id
    return host_port(host, int(port))


_START_TIMEOUT_S = 5.0
# Its own end is bounded; this is for a server that is blocked.
_END_TIMEOUT_S = 10.0


def make_admin(
    settings: MeshSettings,
    *,
    own: ProcessMetrics,
    token: bytes,
    home: Path | None = None,
    run_dir: Path | None = None,
    status: Callable[[], Awaitable[control_pb2.StatusReply]] | None = None,
    front: Front | None = None,
    is_of_driver: bool = False,
) -> AdminServer | None:
    """Return the admin server of this process, ``None`` if it is switched off.

    Args:
        settings: Of this process.
        own: What it has counted.
        token: Of the mesh.
        home: Whose run folders hold the sockets of other processes; ``None``: it is alone.
        run_dir: A run folder of this mesh that need not lie there.
        status: As of ``AdminContext``.
        front: The same.
        is_of_driver: The mesh ends with its starter, so that methods may be called from
            its page unless the settings say no.
    """
    port = settings.metrics.port
    if port is None:
        return None
    _tell_other_bounds(settings.metrics)
    admin_context = AdminContext(
        gathering=NodeGathering(own, token, home, run_dir),
        status=status,
        front=front,
        speaks_tls=settings.security.tls is not None,
        bounds=bounds_of(settings.metrics),
        tries=is_of_driver if settings.metrics.tries is None else settings.metrics.tries,
    )
    return AdminServer(
        admin_context,
        host=listening_host(settings.node),
        port=port,
        token=token,
        tls=settings.security.tls,
        is_guarded=settings.security.knows_callers,
        takes_plain_token=settings.node.plain_tcp,
    )


def _tell_other_bounds(settings: MetricsSettings) -> None:
    asked = [
        (REQUEST_BUCKETS, settings.request_bounds_ms),
        (MODEL_BUCKETS, settings.model_bounds_ms),
    ]
    for name, bounds_ms in asked:
        if taken := others_taken(bounds_ms):
            _LOGGER.warning("%s: times are counted by other bounds; %s is taken", name, taken)


class ThreadedAdmin:
    """An admin server in a thread and a loop of its own, beside user code; until ``close``.

    Args:
        server: Not started yet.

    Raises:
        MeshError: It cannot listen.
    """

    def __init__(self, server: AdminServer) -> None:
        self._server = server
        self._thread = LoopThread("pyserve-admin", waits_for_threads=False)
        try:
            self._thread.run(self._start()).result(_START_TIMEOUT_S)
        except BaseException:
            self._thread.close()
            raise

    @property
    def address(self) -> str:
        """``host:port`` where it listens."""
        return self._server.address

    def close(self) -> None:
        """End the server and its thread. Idempotent."""
        if self._thread.is_running:
            try:
                self._thread.run(self._server.close()).result(_END_TIMEOUT_S)
            except TimeoutError:
                _LOGGER.warning("the admin server did not end within %g s", _END_TIMEOUT_S)
            self._thread.close()

    async def _start(self) -> None:
        self._server.start()


@contextlib.contextmanager
def showing_metrics(
    settings: MeshSettings, controller: str, token: bytes
) -> Iterator[tuple[ProcessMetrics, str]]:
    """Serve a replica's metrics at a port of its own, since no other process knows its socket.

    Args:
        settings: Of this process.
        controller: Where it finds that.
        token: Of the mesh.

    Yields:
        Its metrics, and ``host:port`` where they are served, "" if nowhere.
    """
    metrics = ProcessMetrics("replica")
    server = make_admin(settings, own=metrics, token=token)
    if server is None:
        yield metrics, ""
        return
    admin = ThreadedAdmin(server)
    try:
        bound = advertised_host(settings.node, controller, listening_host(settings.node))
        yield metrics, advertised_address(settings.node, admin.address, bound)
    finally:
        admin.close()
