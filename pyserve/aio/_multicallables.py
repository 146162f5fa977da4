"""The four multi-callables of a channel: one object per method, one call per call of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

import grpc

from pyserve.aio._calls import StreamStreamCall, StreamUnaryCall, UnaryStreamCall, UnaryUnaryCall
from pyserve.aio._client_interceptors import INTERCEPTED_CALLS, KINDS, InterceptedCall, Kind
from pyserve.aio._credentials import method_text
from pyserve.aio._metadata import MetadataLike
from pyserve.aio._options import compression_number

if TYPE_CHECKING:
    from pyserve.aio._channel import Channel

_CHANNEL_DEFAULT_COMPRESSION = -1


if TYPE_CHECKING:
    _GrpcStreamUnary: TypeAlias = grpc.aio.StreamUnaryMultiCallable[Any, Any]
    _GrpcStreamStream: TypeAlias = grpc.aio.StreamStreamMultiCallable[Any, Any]
else:  # Not in every release of grpcio they take types.
    _GrpcStreamUnary = grpc.aio.StreamUnaryMultiCallable
    _GrpcStreamStream = grpc.aio.StreamStreamMultiCallable


class _MultiCallable:
    kind: Kind

    def __init__(
        self,
        channel: Channel,
        method: str,
        request_serializer: Callable[[Any], bytes] | None,
        response_deserializer: Callable[[bytes], Any] | None,
    ) -> None:
        self._channel = channel
        self._path = method
        self._serialize = request_serializer or _as_bytes
        self._deserialize = response_deserializer or _identity
        self._interceptors = channel.interceptors(self.kind)
        self._config = channel.config_of(method)
        # Requests that come one after the other are not kept for a second attempt.
        keeps_requests = not self.kind.request_streaming
        self._retry = self._config.retry if self._config and keeps_requests else None
        # Without these a call goes straight to the native channel.
        credentials = channel.call_credentials.plugins
        self._direct = not (self._interceptors or credentials or self._retry)

    def _intercept(
        self,
        request: Any,
        timeout: float | None,
        metadata: MetadataLike | None,
        credentials: grpc.CallCredentials | None,
        wait_for_ready: bool | None,
        compression: grpc.Compression | None,
    ) -> InterceptedCall:
        self._channel.call_credentials.check(credentials)
        details = grpc.aio.ClientCallDetails(
            self._path.encode(),  # type: ignore[arg-type]  # bytes, as in grpc.aio
            timeout,
            _as_metadata(metadata),
            credentials,
            wait_for_ready,
        )
        call_type: type[InterceptedCall] = INTERCEPTED_CALLS[self.kind.name]
        return call_type(self.kind, self._interceptors, details, request, self._leaf(compression))

    def _configured(
        self, timeout: float | None, wait_for_ready: bool | None
    ) -> tuple[float | None, bool | None]:
        """Return the two with what the channel's service config adds."""
        assert self._config is not None
        waits = self._config.waits_for_ready if wait_for_ready is None else wait_for_ready
        return self._config.timeout(timeout), waits

    def _leaf(self, compression: grpc.Compression | None) -> Any:
        async def invoke(details: grpc.aio.ClientCallDetails, request: Any) -> Any:
            metadata = await self._channel.call_credentials.add_to(details)

            def start(timeout: float | None, metadata: MetadataLike | None) -> Any:
                path, waits = method_text(details), details.wait_for_ready
                return self._invoke(path, request, timeout, metadata, waits, compression)

            if self._retry is None:
                return start(details.timeout, metadata)
            return await self._retry.run(start, details.timeout, metadata)

        return invoke

    def _invoke(
        self,
        path: str,
        request: Any,
        timeout: float | None,
        metadata: MetadataLike | None,
        wait_for_ready: bool | None,
        compression: grpc.Compression | None,
    ) -> Any:
        raise NotImplementedError


class _UnaryRequestMultiCallable(_MultiCallable):
    def __call__(
        self,
        request: Any,
        *,
        timeout: float | None = None,
        metadata: MetadataLike | None = None,
        credentials: grpc.CallCredentials | None = None,
        wait_for_ready: bool | None = None,
        compression: grpc.Compression | None = None,
    ) -> Any:
        """Call the method with ``request``.

        Args:
            request: The request message.
            timeout: Seconds until the deadline; ``None``: no deadline.
            metadata: Pairs to send along.
            credentials: Credentials of this call; on channels with TLS only.
            wait_for_ready: Wait for a connection instead of failing at once without one.
            compression: Of the request; ``None``: the channel's.
        """
        if self._config is not None:
            timeout, wait_for_ready = self._configured(timeout, wait_for_ready)
        if self._direct and credentials is None:
            return self._invoke(self._path, request, timeout, metadata, wait_for_ready, compression)
        return self._intercept(request, timeout, metadata, credentials, wait_for_ready, compression)


class _StreamRequestMultiCallable(_MultiCallable):
    def __call__(
        self,
        request_iterator: Any = None,
        timeout: float | None = None,
        metadata: MetadataLike | None = None,
        credentials: grpc.CallCredentials | None = None,
        wait_for_ready: bool | None = None,
        compression: grpc.Compression | None = None,
    ) -> Any:
        """Call the method; without ``request_iterator`` the requests come by ``call.write``.

        The other arguments are those of the calls with one request.
        """
        if self._config is not None:
            timeout, wait_for_ready = self._configured(timeout, wait_for_ready)
        if self._direct and credentials is None:
            return self._invoke(
                self._path, request_iterator, timeout, metadata, wait_for_ready, compression
            )
        return self._intercept(
            request_iterator, timeout, metadata, credentials, wait_for_ready, compression
        )


class UnaryUnaryMultiCallable(
    _UnaryRequestMultiCallable, grpc.aio.UnaryUnaryMultiCallable[Any, Any]
):
    """Makes unary calls of one method."""

    kind = KINDS["unary_unary"]

    def _invoke(
        self,
        path: str,
        request: Any,
        timeout: float | None,
        metadata: MetadataLike | None,
        wait_for_ready: bool | None,
        compression: grpc.Compression | None,
    ) -> UnaryUnaryCall:
        channel = self._channel
        number = _CHANNEL_DEFAULT_COMPRESSION
        if compression is not None:
            number = _number(compression)
        state = channel.start(
            path, self._serialize(request), timeout, metadata, wait_for_ready, number, False
        )
        return UnaryUnaryCall(state, self._deserialize, channel.wait_ready_or_settled)


class UnaryStreamMultiCallable(
    _UnaryRequestMultiCallable, grpc.aio.UnaryStreamMultiCallable[Any, Any]
):
    """Makes calls of one method with streamed responses."""

    kind = KINDS["unary_stream"]

    def _invoke(
        self,
        path: str,
        request: Any,
        timeout: float | None,
        metadata: MetadataLike | None,
        wait_for_ready: bool | None,
        compression: grpc.Compression | None,
    ) -> UnaryStreamCall:
        raw = self._serialize(request)
        state = self._channel.start(
            path, raw, timeout, metadata, wait_for_ready, _number(compression), True
        )
        state.open_stream()
        return UnaryStreamCall(state, self._deserialize, self._channel.wait_ready_or_settled)


class StreamUnaryMultiCallable(_StreamRequestMultiCallable, _GrpcStreamUnary):
    """Makes calls of one method with streamed requests."""

    kind = KINDS["stream_unary"]

    def _invoke(
        self,
        path: str,
        request: Any,
        timeout: float | None,
        metadata: MetadataLike | None,
        wait_for_ready: bool | None,
        compression: grpc.Compression | None,
    ) -> StreamUnaryCall:
        number = _number(compression)
        state = self._channel.start(path, None, timeout, metadata, wait_for_ready, number, False)
        state.open_stream()
        call = StreamUnaryCall(state, self._deserialize, self._channel.wait_ready_or_settled)
        call.send_requests(request, self._serialize, number)
        return call


class StreamStreamMultiCallable(_StreamRequestMultiCallable, _GrpcStreamStream):
    """Makes calls of one method with streams both ways."""

    kind = KINDS["stream_stream"]

    def _invoke(
        self,
        path: str,
        request: Any,
        timeout: float | None,
        metadata: MetadataLike | None,
        wait_for_ready: bool | None,
        compression: grpc.Compression | None,
    ) -> StreamStreamCall:
        number = _number(compression)
        state = self._channel.start(path, None, timeout, metadata, wait_for_ready, number, True)
        state.open_stream()
        call = StreamStreamCall(state, self._deserialize, self._channel.wait_ready_or_settled)
        call.send_requests(request, self._serialize, number)
        return call


def _number(compression: grpc.Compression | None) -> int:
    number = compression_number(compression)
    return _CHANNEL_DEFAULT_COMPRESSION if number is None else number


def _as_metadata(metadata: MetadataLike | None) -> grpc.aio.Metadata:
    if isinstance(metadata, grpc.aio.Metadata):
        return metadata
    return grpc.aio.Metadata(*(metadata or ()))


def _as_bytes(request: Any) -> Any:
    # The native side would wait for a request that comes later.
    if request is None:
        raise TypeError("without a serializer a request must be bytes, not None")
    return request


def _identity(value: Any) -> Any:
    return value
