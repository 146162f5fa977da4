"""The gRPC server of the control plane, and the metadata of calls to it.

It checks the mesh token before it reads a request, limits the size of each kind of message, and
rate-limits peers that flood it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from functools import partial
from typing import Any

from grpc import aio as rpc

from pyserve import aio
from pyserve.aio.certificates import MeshTls
from pyserve.config import MeshSettings, host_port, is_loopback
from pyserve.config.control import (
    CONTROL_MESSAGE_BYTES_MAX,
    DEPLOY_MESSAGE_BYTES_MAX,
    JOIN_MESSAGE_BYTES_MAX,
    KEEPALIVE_PERIOD_S,
    KEEPALIVE_TIMEOUT_S,
)
from pyserve.config.tls import PLAIN_TCP_REMEDY
from pyserve.errors import MeshError
from pyserve.observe.log_rate_limit import LogRateLimit

_LOGGER = logging.getLogger(__name__)
_UNLIMITED = -1
_LOOPBACK = "127.0.0.1"
# Of a path in the log, which a client without a token chooses freely. Longer than our own paths.
_PATH_LENGTH_MAX = 80
_SERVER_OPTIONS: tuple[tuple[str, int], ...] = (
    ("grpc.max_receive_message_length", CONTROL_MESSAGE_BYTES_MAX),
    ("grpc.max_send_message_length", _UNLIMITED),
    # Two controllers on one port would each see half of the mesh.
    ("grpc.so_reuseport", 0),
    ("grpc.keepalive_time_ms", int(KEEPALIVE_PERIOD_S * 1000)),
    ("grpc.keepalive_timeout_ms", int(KEEPALIVE_TIMEOUT_S * 1000)),
    ("pyserve.doors", 0),
    # Few members are idle: each holds a stream, except drivers between two calls.
    ("pyserve.idle_connection_memory_mb", 16),
)
_RECEIVE_BYTES_MAX = {
    "/pyserve.wire.v1.Mesh/Join": JOIN_MESSAGE_BYTES_MAX,
    "/pyserve.wire.v1.Control/Deploy": DEPLOY_MESSAGE_BYTES_MAX,
}
# grpc makes the authority of a Unix socket from its path, with escapes that no host name may have
# and native servers refuse.
UNIX_OPTIONS: tuple[tuple[str, str], ...] = (("grpc.default_authority", "localhost"),)

Server = aio.Server
RpcError = rpc.AioRpcError


def make_server(token: bytes) -> Server:
    """Return a server for the control plane; it listens nowhere yet.

    Args:
        token: what every call has to carry; without it a call is refused before its body is read.
    """
    return aio.Server(
        options=_SERVER_OPTIONS,
        settings=aio.ServerSettings(
            call_token=token,
            on_turned_away=partial(_log_refusal, LogRateLimit()),
            max_receive_message_bytes=_RECEIVE_BYTES_MAX,
        ),
    )


def _log_refusal(limit: LogRateLimit, path: str, peer: str) -> None:
    # One line for all peers: a flood may come from many addresses.
    if limit.allows():
        _LOGGER.warning(
            "%s called %r without the mesh token, or with a wrong one; no other such call is "
            "logged for a minute",
            peer,
            path[:_PATH_LENGTH_MAX],
        )


@dataclass(frozen=True)
class TcpPlace:
    """Where a controller is reached over TCP.

    Attributes:
        bind: ``host:port``; port 0 picks one.
        advertised_host: what others dial.
    """

    bind: str
    advertised_host: str


# For processes of this machine only.
LOOPBACK_PLACE = TcpPlace(host_port(_LOOPBACK, 0), _LOOPBACK)


def tcp_place(settings: MeshSettings) -> TcpPlace | None:
    """Return where other machines reach the controller; ``None``: everything is on this one.

    What is open for the ingress and replicas alone does not open the controller, to which everybody
    shows the mesh token: without TLS between processes it listens where only this machine is.

    Raises:
        MeshError: it is told to listen where other machines would show it the token in plain text.
    """
    node, named = settings.node, settings.controller
    if named is not None and not named.startswith("unix:"):
        host, _, port = named.rpartition(":")
        if not node.may_carry_token(named):
            raise MeshError(
                f"{settings.controller_is_of} lets the controller listen at {named}, where the "
                f"mesh token would pass over the network in plain text; {PLAIN_TCP_REMEDY}"
            )
        bound = host_port(node.bind_host or host, int(port))
        return TcpPlace(bound if node.may_carry_token(bound) else named, host)
    is_open = node.bind_host is not None and not is_loopback(node.bind_host)
    if is_open or node.advertise_host is not None:
        host = node.bind_host or _LOOPBACK
        bound = host_port(host, 0)
        if node.may_carry_token(bound):
            return TcpPlace(bound, node.advertise_host or host)
    return None


def same_place(place: TcpPlace | None, former: str) -> TcpPlace | None:
    """Return ``place`` with the port of the controller before, if any port would do.

    Args:
        place: where this one shall be reached.
        former: ``host:port`` where the one before was; "": nowhere.
    """
    if place is None or not former or not place.bind.endswith(":0"):
        return place
    host, port = place.bind.rpartition(":")[0], int(former.rpartition(":")[2])
    return TcpPlace(f"{host}:{port}", place.advertised_host)


def listen_tcp(server: Server, address: str, tls: MeshTls | None) -> int:
    """Bind a port and return it; with ``tls`` it speaks nothing else."""
    if tls is None:
        return server.add_insecure_port(address)
    return server.add_secure_port(address, tls.server_credentials)


async def converse(
    context: Any,
    next_command: Callable[[], Awaitable[object | None]],
    reading: Coroutine[Any, Any, None],
) -> None:
    """Serve a stream: send commands and read messages at the same time, until the last command.

    Args:
        context: of the call.
        next_command: returns ``None`` to end the stream.
        reading: reads the messages; it is cancelled with the last command.
    """
    reader = asyncio.create_task(reading)
    try:
        while (command := await next_command()) is not None:
            await context.write(command)
    finally:
        reader.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await reader
