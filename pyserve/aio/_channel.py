"""The channel: connections, states, and the start of calls."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any

import grpc

from pyserve.aio._call_state import CallState
from pyserve.aio._client_interceptors import KINDS, Kind
from pyserve.aio._credentials import CallCredentials, ChannelTls, read_channel_credentials
from pyserve.aio._metadata import MetadataLike, WireMetadata, to_wire
from pyserve.aio._multicallables import (
    StreamStreamMultiCallable,
    StreamUnaryMultiCallable,
    UnaryStreamMultiCallable,
    UnaryUnaryMultiCallable,
)
from pyserve.aio._options import (
    ChannelArguments,
    ChannelOptions,
    read_channel_options,
)
from pyserve.aio._service_config import MethodConfig, ServiceConfig
from pyserve.bridge import LoopEndpoint, check_not_forked, running_endpoint, rust

_STATE_BY_NUMBER = {state.value[0]: state for state in grpc.ChannelConnectivity}


class _StateWatch:
    """Receives the one STATE event of a watch."""

    def __init__(self, endpoint: LoopEndpoint, token: int) -> None:
        self.future: asyncio.Future[None] = endpoint.loop.create_future()
        self._endpoint = endpoint
        self._token = token
        endpoint.receivers[token] = self

    def abandon(self) -> None:
        """The loop closes; nobody waits any more."""

    def on_event(self, _kind: int, _subject: object, _payload: object) -> None:
        """Take the event."""
        self.stop()
        if not self.future.done():
            self.future.set_result(None)

    def stop(self) -> None:
        """Forget the watch."""
        self._endpoint.receivers.pop(self._token, None)


class Channel(grpc.aio.Channel):
    """A client of one target with the interface of ``grpc.aio.Channel``.

    Made by ``insecure_channel`` and ``secure_channel``, or over a native channel that somebody
    else has made (for instance one deployment of a routing table). Belongs to the loop that
    first uses it. With ``replica_id`` every call goes to that replica of the deployment;
    ``outgoing`` returns what each call carries beside its metadata.
    """

    def __init__(
        self,
        native: rust.Channel,
        *,
        interceptors: Sequence[grpc.aio.ClientInterceptor] = (),
        call_credentials: CallCredentials | None = None,
        replica_id: str = "",
        outgoing: Callable[[], WireMetadata] | None = None,
        service_config: ServiceConfig | None = None,
    ) -> None:
        self._native = native
        self._service_config = service_config
        self._place: dict[str, Any] = {"replica_id": replica_id} if replica_id else {}
        self._outgoing = outgoing
        self._closed = False
        self._endpoint: LoopEndpoint | None = None
        self._interceptors = _sorted_by_kind(interceptors)
        self.call_credentials = call_credentials or CallCredentials((), None)

    # --- calls --------------------------------------------------------------------------

    def unary_unary(
        self,
        method: str,
        request_serializer: Callable[[Any], bytes] | None = None,
        response_deserializer: Callable[[bytes], Any] | None = None,
        _registered_method: bool | None = False,
    ) -> UnaryUnaryMultiCallable:
        """Return what makes unary calls of ``method``."""
        return UnaryUnaryMultiCallable(self, method, request_serializer, response_deserializer)

    def unary_stream(
        self,
        method: str,
        request_serializer: Callable[[Any], bytes] | None = None,
        response_deserializer: Callable[[bytes], Any] | None = None,
        _registered_method: bool | None = False,
    ) -> UnaryStreamMultiCallable:
        """Return what makes calls of ``method`` with streamed responses."""
        return UnaryStreamMultiCallable(self, method, request_serializer, response_deserializer)

    def stream_unary(
        self,
        method: str,
        request_serializer: Callable[[Any], bytes] | None = None,
        response_deserializer: Callable[[bytes], Any] | None = None,
        _registered_method: bool | None = False,
    ) -> StreamUnaryMultiCallable:
        """Return what makes calls of ``method`` with streamed requests."""
        return StreamUnaryMultiCallable(self, method, request_serializer, response_deserializer)

    def stream_stream(
        self,
        method: str,
        request_serializer: Callable[[Any], bytes] | None = None,
        response_deserializer: Callable[[bytes], Any] | None = None,
        _registered_method: bool | None = False,
    ) -> StreamStreamMultiCallable:
        """Return what makes calls of ``method`` with streams both ways."""
        return StreamStreamMultiCallable(self, method, request_serializer, response_deserializer)

    def interceptors(self, kind: Kind) -> Sequence[Any]:
        """Return the interceptors of one kind of calls."""
        return self._interceptors[kind.name]

    def config_of(self, path: str) -> MethodConfig | None:
        """Return what the channel's service config says of a method."""
        return None if self._service_config is None else self._service_config.of(path)

    def start(
        self,
        path: str,
        message: bytes | None,
        timeout: float | None,
        metadata: MetadataLike | None,
        wait_for_ready: bool | None,
        compression: int,
        response_streaming: bool,
    ) -> CallState:
        """Start a call; for the multi-callables."""
        if self._closed:
            raise grpc.aio.UsageError("Channel is closed.")
        endpoint = self._endpoint
        if endpoint is None or asyncio.get_running_loop() is not endpoint.loop or endpoint.closed:
            endpoint = self._bind()
        pairs = to_wire(metadata) if metadata else ()
        if self._outgoing is not None and (carried := self._outgoing()):
            # The caller's own metadata takes precedence.
            said = {key for key, _ in pairs}
            pairs += tuple(pair for pair in carried if pair[0] not in said)
        call = self._native.start_call(
            endpoint.raw,
            path,
            pairs,
            timeout,
            message,
            compression,
            bool(wait_for_ready),
            response_streaming,
            **self._place,
        )
        return CallState(call, endpoint, self)

    def _bind(self) -> LoopEndpoint:
        check_not_forked()
        if self._endpoint is not None and not self._endpoint.closed:
            raise RuntimeError(
                "this channel belongs to another event loop, which is still open: make one "
                "channel per loop"
            )
        self._endpoint = running_endpoint()
        return self._endpoint

    # --- state --------------------------------------------------------------------------

    def get_state(self, try_to_connect: bool = False) -> grpc.ChannelConnectivity:
        """Return the state of the connection; ``try_to_connect`` ends idleness."""
        if self._closed:
            return grpc.ChannelConnectivity.SHUTDOWN
        return _STATE_BY_NUMBER[self._native.state(try_to_connect)]

    async def wait_for_state_change(self, last_observed_state: grpc.ChannelConnectivity) -> None:
        """Wait until the state is another than ``last_observed_state``."""
        if self.get_state() is not last_observed_state:
            return
        watch = self._watch(last_observed_state)
        try:
            await watch.future
        finally:
            watch.stop()

    async def channel_ready(self) -> None:
        """Connect, and wait until the channel is ready. Has no end of its own."""
        state = self.get_state(try_to_connect=True)
        while state is not grpc.ChannelConnectivity.READY:
            if state is grpc.ChannelConnectivity.SHUTDOWN:
                raise grpc.aio.UsageError("Channel is closed.")
            await self.wait_for_state_change(state)
            state = self.get_state(try_to_connect=True)

    async def wait_ready_or_settled(self, state: CallState) -> None:
        """Wait until the channel is ready or the call of ``state`` has ended."""
        while not (state.settled or state.connected):
            seen = self.get_state(try_to_connect=True)
            if seen in (grpc.ChannelConnectivity.READY, grpc.ChannelConnectivity.SHUTDOWN):
                return
            watch = self._watch(seen)
            settled = state.waiter()
            try:
                await asyncio.wait((watch.future, settled), return_when=asyncio.FIRST_COMPLETED)
            finally:
                watch.stop()
                settled.cancel()

    def _watch(self, last_state: grpc.ChannelConnectivity) -> _StateWatch:
        endpoint = self._endpoint
        if endpoint is None or endpoint.closed or asyncio.get_running_loop() is not endpoint.loop:
            endpoint = self._bind()
        token = self._native.watch_state(endpoint.raw, last_state.value[0])
        watch = _StateWatch(endpoint, token)
        endpoint.schedule_flush()
        return watch

    # --- end ----------------------------------------------------------------------------

    async def close(self, grace: float | None = None) -> None:
        """Refuse new calls, wait up to ``grace`` seconds for the others, cancel the rest.

        Idempotent.

        Raises:
            ValueError: ``grace`` is negative.
        """
        if self._closed:
            return
        if grace is not None and grace < 0:
            raise ValueError(f"grace must be non-negative, got {grace}.")
        self._closed = True
        calls = self._calls()
        if grace and calls:
            await asyncio.wait([call.waiter() for call in calls], timeout=grace)
        for call in calls:
            call.cancel("Channel closed!")
        self._native.close()

    def _calls(self) -> list[CallState]:
        if self._endpoint is None:
            return []
        return [
            receiver
            for receiver in tuple(self._endpoint.receivers.values())
            if isinstance(receiver, CallState) and receiver.owner is self
        ]

    async def __aenter__(self) -> Channel:
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc_val: BaseException | None,
        exc_tb: TracebackType | None,
    ) -> bool | None:
        await self.close(None)
        return None

    def __del__(self) -> None:
        if not getattr(self, "_closed", True):
            self._native.close()


def insecure_channel(
    target: str,
    options: ChannelArguments | None = None,
    compression: grpc.Compression | None = None,
    interceptors: Sequence[grpc.aio.ClientInterceptor] | None = None,
) -> Channel:
    """Make a channel without TLS, as ``grpc.aio.insecure_channel`` does.

    Args:
        target: ``host:port``, ``dns:///host:port``, ``ipv4:…`` or ``unix:path``.
        options: grpc channel arguments; those without a meaning here are ignored.
        compression: Of all requests whose call does not choose.
        interceptors: Asked in order for every call of their kind.
    """
    settings = read_channel_options(options or (), compression)
    return Channel(
        _native(target, settings, None),
        interceptors=interceptors or (),
        service_config=settings.service_config,
    )


def secure_channel(
    target: str,
    credentials: grpc.ChannelCredentials,
    options: ChannelArguments | None = None,
    compression: grpc.Compression | None = None,
    interceptors: Sequence[grpc.aio.ClientInterceptor] | None = None,
) -> Channel:
    """Make a channel with TLS, as ``grpc.aio.secure_channel`` does.

    Args:
        target: As for ``insecure_channel``.
        credentials: Of ``grpc.ssl_channel_credentials``, also composed with call credentials.
        options: grpc channel arguments; those without a meaning here are ignored.
        compression: Of all requests whose call does not choose.
        interceptors: Asked in order for every call of their kind.

    Raises:
        TypeError: The credentials are of another kind.
    """
    settings = read_channel_options(options or (), compression)
    tls = read_channel_credentials(credentials)
    return Channel(
        _native(target, settings, tls),
        interceptors=interceptors or (),
        call_credentials=CallCredentials(
            tls.call_credentials, settings.authority or settings.server_name or target
        ),
        service_config=settings.service_config,
    )


def live_channel(target: str, tls: ChannelTls, options: ChannelArguments | None = None) -> Channel:
    """Make a channel whose certificates may be exchanged while it is open."""
    return Channel(_native(target, read_channel_options(options or (), None), tls))


def _native(target: str, options: ChannelOptions, tls: ChannelTls | None) -> rust.Channel:
    check_not_forked()
    native_tls = None if tls is None else tls.native
    if tls is not None and native_tls is None:
        native_tls = rust.ClientTls(
            tls.root_certificates, tls.private_key, tls.certificate_chain, options.server_name
        )
    return rust.Channel(
        target,
        tls=native_tls,
        authority=options.authority,
        user_agent=options.user_agent,
        max_receive_message_bytes=options.max_receive_message_bytes,
        max_send_message_bytes=options.max_send_message_bytes,
        default_compression=options.default_compression,
        enabled_compressions=options.compressions(),
        keepalive_time_s=options.keepalive_time_s,
        keepalive_timeout_s=options.keepalive_timeout_s,
        reconnect_backoff_initial_s=options.reconnect_backoff_initial_s,
        reconnect_backoff_max_s=options.reconnect_backoff_max_s,
    )


def _sorted_by_kind(interceptors: Sequence[Any]) -> dict[str, list[Any]]:
    by_kind: dict[str, list[Any]] = {name: [] for name in KINDS}
    for interceptor in interceptors:
        # As in grpc.aio, an interceptor of several kinds serves the first of them only.
        for kind in KINDS.values():
            if isinstance(interceptor, kind.interceptor_type):
                by_kind[kind.name].append(interceptor)
                break
        else:
            raise ValueError(
                f"Interceptor {interceptor} must be one of "
                + ", ".join(kind.interceptor_type.__name__ for kind in KINDS.values())
            )
    return by_kind
