"""Makes the admin server of a process."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

from pyserve.admin.buckets import bounds_of, others_taken
from pyserve.admin.context import AdminContext, Front
from pyserve.admin.gathering import NodeGathering
from pyserve.admin.server import AdminServer, advertised_address, listening_host
from pyserve.config import MeshSettings
from pyserve.config.metrics import MODEL_BUCKETS, REQUEST_BUCKETS, MetricsSettings
from pyserve.loop_thread import LoopThread
from pyserve.observe.metrics import ProcessMetrics
from pyserve.replica.endpoints import advertised_host
from pyserve.wire.v1 import control_pb2

_LOGGER = logging.getLogger(__name__)
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
