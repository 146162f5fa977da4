"""Builds the replica's server from a loaded class and its instance."""

from __future__ import annotations

from typing import Any

from pyserve.aio import Server, ServerSettings, Status
from pyserve.errors import Abort
from pyserve.replica.handlers import register, weights
from pyserve.replica.loading import Loaded

# Threads of `def` handlers. As many as asyncio's own pool has at most; the admission gate
# bounds how many calls can wait for one.
_HANDLER_THREADS_MAX = 32


def make_server(
    loaded: Loaded, instance: object, *, replica_id: str, token: bytes, development: bool
) -> Server:
    """Return a server with all methods registered, which does not listen yet.

    Args:
        loaded: The class and its options.
        instance: The constructed object.
        replica_id: What a router's handshake must find.
        token: The mesh token, which routers prove.
        development: Whether the texts of unexpected exceptions may reach clients.

    Raises:
        ValueError: An interceptor is none.
    """
    options = loaded.options
    interceptors: Any = loaded.interceptors  # Server checks their type.
    sent = options.max_send_message_bytes
    server = Server(
        interceptors=interceptors,
        options=[
            ("grpc.max_receive_message_length", options.max_receive_message_bytes),
            ("grpc.max_send_message_length", -1 if sent is None else sent),
        ],
        maximum_concurrent_rpcs=options.ongoing_requests_limit(),
        settings=ServerSettings(
            development=development,
            replica_id=replica_id,
            token=token,
            weights=weights(loaded.methods),
            status_of=_status_of,
            default_threads=_HANDLER_THREADS_MAX,
        ),
    )
    register(instance, loaded.services, loaded.methods, server.add_registered_method_handlers)
    return server


def _status_of(error: BaseException) -> Status | None:
    if isinstance(error, Abort):
        return Status(error.code, error.details, error.trailing_metadata)
    return None
