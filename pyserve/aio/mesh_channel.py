"""The channel from a process of a mesh to its controller."""

from __future__ import annotations

from pyserve.aio._channel import Channel, insecure_channel
from pyserve.aio.certificates import MeshTls
from pyserve.config.control import REDIAL_BACKOFF_INITIAL_S, REDIAL_BACKOFF_MAX_S

_OPTIONS: tuple[tuple[str, int], ...] = (
    # A pickled class with its weights may be large, and so may the view of a large mesh.
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    ("grpc.initial_reconnect_backoff_ms", int(REDIAL_BACKOFF_INITIAL_S * 1000)),
    ("grpc.max_reconnect_backoff_ms", int(REDIAL_BACKOFF_MAX_S * 1000)),
)


def dial(address: str, tls: MeshTls | None = None) -> Channel:
    """Return a channel to a controller at ``unix:path`` or ``host:port``.

    Unix sockets stay plain: only their user can open them.

    It is ours: grpcio's own client keeps threads that wake twenty times a second for their timers,
    in each process of an idle mesh, and makes children of multiprocessing crash now and then (seen
    with 1.85: SIGSEGV in two of twenty forks of a driver that follows the mesh).
    """
    if tls is not None and not address.startswith("unix:"):
        return tls.channel(address, _OPTIONS)
    return insecure_channel(address, options=_OPTIONS)
