"""The gRPC server and channels of the control plane: the one place that names the library.

They are used through ``grpc.aio``'s interface only, so another implementation of it is a change
here. Over TCP with certificates it is ours: they can be exchanged while it runs, and names in
them are checked in the handshake. Unix sockets stay plain: only their user can open them.
"""

from __future__ import annotations

from grpc import aio as rpc

from pyserve import aio
from pyserve.aio.certificates import MeshTls
from pyserve.config.control import REDIAL_BACKOFF_INITIAL_S, REDIAL_BACKOFF_MAX_S

# The metadatum's name, not the token.
TOKEN_KEY = "pyserve-token-bin"  # noqa: S105
_UNLIMITED = -1
_COMMON_OPTIONS: tuple[tuple[str, int], ...] = (
    # A pickled class with its weights may be large, and so may the view of a large mesh.
    ("grpc.max_receive_message_length", _UNLIMITED),
    ("grpc.max_send_message_length", _UNLIMITED),
)
_SERVER_OPTIONS: tuple[tuple[str, int], ...] = (
    # Two controllers on one port would each see half of the mesh.
    ("grpc.so_reuseport", 0),
    # A machine that vanishes closes no connection; its replicas are gone after 15 s.
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 5_000),
    ("grpc.keepalive_permit_without_calls", 1),
)
_CHANNEL_OPTIONS: tuple[tuple[str, int], ...] = (
    ("grpc.initial_reconnect_backoff_ms", int(REDIAL_BACKOFF_INITIAL_S * 1000)),
    ("grpc.min_reconnect_backoff_ms", int(REDIAL_BACKOFF_INITIAL_S * 1000)),
    ("grpc.max_reconnect_backoff_ms", int(REDIAL_BACKOFF_MAX_S * 1000)),
    # Proxies of the environment have no business between the parts of one mesh.
    ("grpc.enable_http_proxy", 0),
    # Channels to successive controllers at one address must not share a broken connection.
    ("grpc.use_local_subchannel_pool", 1),
)
# grpc makes the authority of a Unix socket from its path, with escapes that no host name may have
# and native servers refuse.
UNIX_OPTIONS: tuple[tuple[str, str], ...] = (("grpc.default_authority", "localhost"),)

Server = rpc.Server
Channel = rpc.Channel
RpcError = rpc.AioRpcError


def make_server(tls: MeshTls | None = None) -> Server:
    """Return a server for the control plane; it listens nowhere yet."""
    options = [*_COMMON_OPTIONS, *_SERVER_OPTIONS]
    return rpc.server(options=options) if tls is None else aio.server(options=options)


def listen_tcp(server: Server, address: str, tls: MeshTls | None) -> int:
    """Bind a port of a server that ``make_server`` made with the same ``tls``; return it."""
    if tls is None:
        return server.add_insecure_port(address)
    return server.add_secure_port(address, tls.server_credentials)


def dial(address: str, tls: MeshTls | None = None) -> Channel:
    """Return a channel to a controller at ``unix:path`` or ``host:port``."""
    if tls is not None:
        return dial_natively(address, tls)
    options: list[tuple[str, int | str]] = [*_COMMON_OPTIONS, *_CHANNEL_OPTIONS]
    if address.startswith("unix:"):
        options += UNIX_OPTIONS
    return rpc.insecure_channel(address, options=options)


def dial_natively(address: str, tls: MeshTls | None = None) -> Channel:
    """Return a channel that needs no thread of grpcio, for processes that may fork.

    grpcio's own client makes children of multiprocessing crash now and then (seen with 1.85:
    SIGSEGV in two of twenty forks of a driver that follows the mesh).
    """
    if tls is not None and not address.startswith("unix:"):
        return tls.channel(address, _COMMON_OPTIONS)
    return aio.insecure_channel(address, options=_COMMON_OPTIONS)


def proof(token: bytes) -> tuple[tuple[str, str | bytes], ...]:
    """Return the metadata that every call of the control plane carries."""
    return ((TOKEN_KEY, token),)
