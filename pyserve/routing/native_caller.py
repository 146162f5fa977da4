"""The way of handle calls over the native router, for one deployment."""

from __future__ import annotations

import asyncio
from asyncio import get_running_loop
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pyserve.api.handles.calls import Pinned
from pyserve.api.handles.outgoing import error_of
from pyserve.bridge import LoopEndpoint, endpoint_of, running_endpoint, rust
from pyserve.errors import BackPressure
from pyserve.observe.delays import PROCESS_DELAYS, asks
from pyserve.observe.traces import OutgoingMetadata
from pyserve.observe.traces.process import PROCESS_TRACING
from pyserve.request import CURRENT

if TYPE_CHECKING:
    from pyserve.api.handles.calls import Message, Receiver, Reservation, Route, WireCall
    from pyserve.types import DeploymentKey
    from pyserve.wire.v1 import mesh_pb2

_CANCELLED = 1  # The number of grpc.StatusCode.CANCELLED.


class NativeCaller:
    """Implements ``pyserve.api.handles.calls.Caller`` over one native channel.

    Args:
        key: The deployment.
        table: Knows where its replicas are.
        view: Returns what the controller says about the deployment now.
        node: This machine.
    """

    def __init__(
        self,
        key: DeploymentKey,
        table: rust.RoutingTable,
        view: Callable[[], mesh_pb2.DeploymentView | None],
        node: str,
    ) -> None:
        self._node = node
        self._key = key
        self._view = view
        self._table = table
        # No limits: calls of handles are chunked by HTTP/2, and one mesh trusts itself.
        self._channel = rust.Channel(
            str(key), table=table, max_receive_message_bytes=-1, max_send_message_bytes=-1
        )
        self._start = self._channel.start_call
        self._endpoint: LoopEndpoint | None = None

    def prepare(self, route: Route) -> Route:
        """Return the route with the native options of its calls; see ``Caller``."""
        options = rust.CallOptions(
            session_id=route.session_id,
            priority=route.priority,
            cost=route.cost,
            caller=route.caller,
            idempotent=route.idempotent,
            locality=route.locality,
            cache_keys=route.cache_keys,
        )
        return replace(route, native=options)

    def start(
        self,
        route: Route,
        message: Message,
        timeout_s: float | None,
        receiver: Receiver,
        place: Reservation | Pinned | None = None,
        /,
    ) -> WireCall:
        """Start one call on the running loop; see ``Caller``."""
        metadata = outgoing()
        # The loop of the last call is that of most; other threads see their own below.
        endpoint = self._endpoint
        if endpoint is None or get_running_loop() is not endpoint.loop or endpoint.closed:
            endpoint = self._endpoint = running_endpoint()
        if place is None:
            call = self._start(
                endpoint.raw,
                route.path,
                metadata,
                timeout_s,
                message,  # type: ignore[arg-type]  # a list of another element type
                0,
                False,
                route.streaming,
                subtype=route.codec,
                framed=True,
                model_id=route.model_id,
                options=route.native,  # type: ignore[arg-type]  # what ``prepare`` has made
            )
        else:
            call = self._start_at(endpoint.raw, route, metadata, message, timeout_s, place)
        endpoint.receivers[call.token] = receiver
        if call.started:
            endpoint.schedule_flush()
        return call

    def _start_at(
        self,
        endpoint: rust.Endpoint,
        route: Route,
        metadata: rust.Metadata,
        message: Any,
        timeout_s: float | None,
        place: Reservation | Pinned,
    ) -> rust.ClientCall:
        pinned = isinstance(place, Pinned)
        chosen: Any = {"replica_id": place.replica_id} if pinned else {"reservation": place}
        return self._start(
            endpoint,
            route.path,
            metadata,
            timeout_s,
            message,
            0,
            False,
            route.streaming,
            subtype=route.codec,
            framed=True,
            model_id=route.model_id,
            options=route.native,  # type: ignore[arg-type]  # what ``prepare`` has made
            **chosen,
        )

    def backpressure(self, call: WireCall, /) -> tuple[int, float | None]:
        """Return what the deployment's options say, and the router's estimate; see ``Caller``."""
        assert isinstance(call, rust.ClientCall)
        view = self._view()
        if view is None:
            return BackPressure.status_code, call.retry_after_s()
        status = view.queue_full_status or BackPressure.status_code
        return status, view.retry_after_s or call.retry_after_s()

    def cancel(self, call: WireCall, loop: asyncio.AbstractEventLoop, /) -> None:
        """Reset a call on its loop; see ``Caller``."""
        assert isinstance(call, rust.ClientCall)
        endpoint = endpoint_of(loop)
        must_flush = call.cancel(_CANCELLED, "")
        if endpoint is not None:
            endpoint.receivers.pop(call.token, None)
            if must_flush:
                endpoint.schedule_flush()

    def taken(self, call: WireCall, size_bytes: int, loop: asyncio.AbstractEventLoop, /) -> None:
        """Give back credit of a stream; see ``Caller``."""
        assert isinstance(call, rust.ClientCall)
        if call.taken(size_bytes):
            endpoint = endpoint_of(loop)
            if endpoint is not None:
                # Not scheduled: this may be another thread than the loop's.
                endpoint.raw.flush()

    async def choose(self, route: Route, timeout_s: float | None) -> Reservation:
        """Take a place at a replica; see ``Caller``."""
        endpoint = running_endpoint()
        token, must_flush = self._channel.choose(
            endpoint.raw,
            route.path,
            timeout_s,
            route.model_id,
            route.native,  # type: ignore[arg-type]  # what ``prepare`` has made
        )
        choice = _Choice(endpoint, route)
        endpoint.receivers[token] = choice
        if must_flush:
            endpoint.schedule_flush()
        try:
            return await choice.future
        finally:
            # A place that comes after a cancellation is given back with its object.
            endpoint.receivers.pop(token, None)

    def is_near(self) -> bool:
        """Tell whether every replica runs on this machine; see ``Caller``."""
        replicas = self.replicas()
        return bool(replicas) and all(node == self._node for _, node, _ in replicas)

    def serializer(self) -> str:
        """Return the codec that the deployment's options name, ``""`` while that is unknown."""
        view = self._view()
        return "" if view is None else view.serializer

    def replicas(self) -> Sequence[tuple[str, str, Sequence[str]]]:
        """Return id, node and loaded models of each replica that serves."""
        return self._table.replicas(str(self._key))

    def place_of(self, replica_id: str) -> tuple[str, str]:
        """Return the address of a replica's machine, and its zone; see ``Caller``."""
        view = self._view()
        replicas = () if view is None else view.replicas
        # It may have gone since it was chosen.
        found = next((each for each in replicas if each.replica_id == replica_id), None)
        if found is None:
            return "", ""
        return found.endpoints.address.rpartition(":")[0].strip("[]"), found.zone

    def close(self) -> None:
        """Cancel the calls in flight. Idempotent."""
        self._channel.close()


class _Choice:
    """Receives the one event that follows on ``choose``."""

    def __init__(self, endpoint: LoopEndpoint, route: Route) -> None:
        self.future: asyncio.Future[Reservation] = endpoint.loop.create_future()
        self._route = route

    def on_event(self, kind: int, subject: object, payload: object, /) -> None:
        """Receive the place, or the reason why there is no place."""
        if self.future.done():
            return
        if kind == rust.CHOSEN:
            assert isinstance(subject, rust.Reservation)
            self.future.set_result(subject)
        else:
            number, details = subject, payload
            assert isinstance(number, int)
            self.future.set_exception(error_of(self._route, number, str(details), None))

    def abandon(self) -> None:
        """The loop closes; nobody waits any more."""


# The metadata by which calls inside a mesh pass on properties of the request that makes them.

# If a client has asked for the explanation of a call, so do the calls that this call makes.
_ASKING = (("x-pyserve-explain", "1"),)


def outgoing() -> OutgoingMetadata:
    """Return the metadata of a call that this code makes: its trace, and that it is asked for."""
    spans = PROCESS_TRACING.spans
    metadata: OutgoingMetadata = () if spans is None else spans.outgoing()
    if PROCESS_DELAYS.is_on and asks(CURRENT.get()):
        metadata += _ASKING
    return metadata
