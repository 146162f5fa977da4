"""A fault of grpcio's asyncio client that tests work around, all in one place."""

from __future__ import annotations

from typing import Any

from grpc.aio import _call


class _StatusOfServer:
    """A call of Cython whose status is the server's, even if a write fails first."""

    def __init__(self, call: Any) -> None:
        self._call = call

    def __getattr__(self, name: str) -> Any:
        return getattr(self._call, name)

    def set_internal_error(self, text: str) -> None:
        """Leave the status open: the one of the server is on its way."""


def keep_status_of_server() -> None:
    """Let calls with streamed requests end with the status that the server sent.

    A server may end a call whose client still writes. The client's write then fails, and grpcio
    may report INTERNAL, "Internal error from Core", in place of the status that arrives a moment
    later (https://github.com/grpc/grpc/issues/36066). It happens in up to one of ten such calls,
    with any server, so a test that expects a status would fail by chance.
    """
    mixin: Any = _call._StreamRequestMixin
    initialize = mixin._init_stream_request_mixin

    def initialize_and_wrap(self: Any, *arguments: Any) -> Any:
        self._cython_call = _StatusOfServer(self._cython_call)
        return initialize(self, *arguments)

    mixin._init_stream_request_mixin = initialize_and_wrap
