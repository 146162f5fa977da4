"""gRPC channels for calls of our own, which nothing that instruments a process gets between.

Agents for tracing replace ``grpc.insecure_channel`` and ``grpc.secure_channel`` by functions whose
channels have interceptors. Those hand out generators where a stream was called: they cannot be
cancelled, and say nothing of status and metadata. So these channels are made of the class that
the functions of grpcio make them of.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import grpc
from grpc import _channel

Options = Sequence[tuple[str, Any]]


def own_channel(
    target: str, options: Options, credentials: grpc.ChannelCredentials | None = None
) -> grpc.Channel:
    """Return a channel as ``grpc.secure_channel`` does, without credentials as the plain one.

    Args:
        target: ``host:port`` or ``unix:path``.
        options: Channel arguments of grpcio's.
        credentials: For TLS; ``None``: it speaks plainly.
    """
    of_tls: Any = credentials  # Its type does not say what it holds.
    native = None if of_tls is None else of_tls._credentials  # noqa: SLF001
    channel: grpc.Channel = _channel.Channel(target, tuple(options), native, None)
    return channel
