"""The channel from a process of a mesh to its controller."""

from __future__ import annotations

import asyncio
import random

from pyserve.aio._channel import Channel, insecure_channel
from pyserve.aio.certificates import MeshTls
from pyserve.config.control import (
    KEEPALIVE_PERIOD_S,
    KEEPALIVE_TIMEOUT_S,
    REDIAL_BACKOFF_FACTOR,
    REDIAL_BACKOFF_INITIAL_S,
    REDIAL_BACKOFF_JITTER,
    REDIAL_BACKOFF_MAX_S,
)

_OPTIONS: tuple[tuple[str, int], ...] = (
    # A pickled class with its weights may be large, and so may the view of a large mesh.
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    ("grpc.initial_reconnect_backoff_ms", int(REDIAL_BACKOFF_INITIAL_S * 1000)),
    ("grpc.max_reconnect_backoff_ms", int(REDIAL_BACKOFF_MAX_S * 1000)),
)

# Longer than a handshake takes on a busy machine; a controller waits for replicas for ten seconds.
_REACHED_WITHIN_S = 3.0

# Another machine may vanish without a word, and its successor has the same address.
_KEEPALIVE: tuple[tuple[str, int], ...] = (
    ("grpc.keepalive_time_ms", int(KEEPALIVE_PERIOD_S * 1000)),
    ("grpc.keepalive_timeout_ms", int(KEEPALIVE_TIMEOUT_S * 1000)),
)


def dial(address: str, tls: MeshTls | None = None, *, keepalive: bool = False) -> Channel:
    """Return a channel to a controller at ``unix:path`` or ``host:port``.

    Unix sockets stay plain: only their user can open them. With ``keepalive`` a controller at
    ``host:port`` that gives no sign of life is noticed.

    It is pyserve's own client. That of grpcio has threads that wake twenty times a second for their
    timers, in each process of an idle mesh, and sometimes makes children of multiprocessing crash
    (seen with 1.85: SIGSEGV in two of twenty forks of a driver that follows the mesh).
    """
    is_local = address.startswith("unix:")
    options = _OPTIONS if is_local or not keepalive else (*_OPTIONS, *_KEEPALIVE)
    if tls is not None and not is_local:
        return tls.channel(address, options)
    return insecure_channel(address, options=options)


def proof(token: bytes) -> tuple[tuple[str, str | bytes], ...]:
    """Return the metadata that every call to a controller carries."""
    return (("pyserve-token-bin", token),)


async def is_reached(channel: Channel) -> bool:
    """Wait until a channel is connected; return whether it was within a few seconds.

    The caller should replace a channel that is not connected. gRPC gives an attempt 20 s, and one
    to a pod that has just ended lasts that long, even if the Service now leads to another pod.
    """
    try:
        async with asyncio.timeout(_REACHED_WITHIN_S):
            await channel.channel_ready()
    except TimeoutError:
        return False
    return True


class Redial:
    """The pauses between attempts to reach a controller: longer each time, until one succeeds.

    With jitter, so that the processes of a mesh do not come back to a new controller all at the
    same instant (gRPC's connection backoff does the same).
    """

    def __init__(self) -> None:
        self._pause_s = REDIAL_BACKOFF_INITIAL_S

    def reset(self) -> None:
        """Begin with the shortest pause again: an attempt has succeeded."""
        self._pause_s = REDIAL_BACKOFF_INITIAL_S

    def next_s(self) -> float:
        """Return how long to wait before the next attempt, in seconds."""
        # It spreads load; nobody has to be kept from guessing it.
        jitter = random.uniform(1 - REDIAL_BACKOFF_JITTER, 1 + REDIAL_BACKOFF_JITTER)  # noqa: S311
        pause_s = self._pause_s * jitter
        self._pause_s = min(self._pause_s * REDIAL_BACKOFF_FACTOR, REDIAL_BACKOFF_MAX_S)
        return pause_s

    async def pause(self) -> None:
        """Wait before the next attempt."""
        await asyncio.sleep(self.next_s())
