"""Asks the metadata plugins of call credentials what to send along."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

import grpc

from pyserve.aio._credentials import flatten_plugins, read_call_credentials

_INSECURE = "Call credentials are only valid on secure channels"


@dataclass(frozen=True)
class CallCredentials:
    """The call credentials of a channel.

    Attributes:
        plugins: Raw credentials that came with the channel's own.
        host: The name that plugins receive; ``None`` on channels without TLS, which must not
            carry credentials.
    """

    plugins: tuple[Any, ...]
    host: str | None

    def check(self, credentials: grpc.CallCredentials | None) -> None:
        """Refuse credentials that would go over a channel without TLS.

        Raises:
            grpc.aio.UsageError: They would.
        """
        if credentials is not None and self.host is None:
            raise grpc.aio.UsageError(_INSECURE)

    async def add_to(self, details: grpc.aio.ClientCallDetails) -> grpc.aio.Metadata | None:
        """Return the metadata of ``details`` with what its credentials add.

        Raises:
            grpc.aio.AioRpcError: A plugin failed.
            grpc.aio.UsageError: The channel has no TLS.
        """
        plugins = tuple(one for raw in self.plugins for one in flatten_plugins(raw))
        if details.credentials is not None:
            plugins += read_call_credentials(details.credentials)
        metadata = details.metadata
        if not plugins:
            return metadata
        if self.host is None:
            raise grpc.aio.UsageError(_INSECURE)
        text = method_text(details)
        added = [pair for plugin in plugins for pair in await _ask(plugin, self.host, text)]
        return grpc.aio.Metadata(*(metadata or ()), *added)


def method_text(details: grpc.aio.ClientCallDetails) -> str:
    """Return the method of ``details``, which grpc.aio gives as bytes and declares as str."""
    method: Any = details.method
    return method.decode() if isinstance(method, bytes) else str(method)


async def _ask(plugin: Any, host: str, path: str) -> list[tuple[str, str | bytes]]:
    """Return the pairs of one plugin, which may block and may answer from any thread."""
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[Any] = loop.create_future()

    def settle(metadata: Any, code: int, details: bytes | None) -> None:
        if answer.done():
            return
        if code == 0:
            answer.set_result(list(metadata or ()))
        else:
            text = (details or b"").decode(errors="replace")
            answer.set_exception(
                _error(
                    grpc.StatusCode.UNAVAILABLE,
                    f"Getting metadata from plugin failed with error: {text}",
                )
            )

    def callback(metadata: Any, code: int, details: bytes | None) -> None:
        loop.call_soon_threadsafe(settle, metadata, code, details)

    service, _, method = path.rpartition("/")
    await asyncio.to_thread(plugin, f"https://{host}{service}", method, callback)
    return await answer  # type: ignore[no-any-return]


def _error(code: grpc.StatusCode, details: str) -> grpc.aio.AioRpcError:
    return grpc.aio.AioRpcError(
        code, grpc.aio.Metadata(), grpc.aio.Metadata(), details=details, debug_error_string=details
    )
