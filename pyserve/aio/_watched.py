"""Calls whose ends somebody wants to know, by whichever way they come.

A server without a log knows nothing of this, and starts its calls as ever.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from pyserve.aio._http import HttpCall
from pyserve.bridge import rust
from pyserve.request import CURRENT

if TYPE_CHECKING:
    from pyserve.bridge import CallStarter, EventReceiver

_CANCELLED = 1
_DEADLINE_EXCEEDED = 4
_REQUEST_ID_KEYS = ("x-request-id", "request_id")
_PREVIOUS_ATTEMPTS = "grpc-previous-rpc-attempts"
# Of calls of channels through the mesh: MESH_AUTHORITY of router_rs/net/src/client/channel.rs.
_MESH_AUTHORITY = "pyserve.mesh"


@dataclass(frozen=True, slots=True)
class EndedCall:
    """A call that has ended; other facts than these are read only when it is logged.

    Attributes:
        call: The native call.
        known_id: Id of the request, where somebody had asked for it or a handle has sent it.
        ended_at: Unix time.
        duration_s: Since its head came to this process.
        code: Number of its gRPC status.
        http_status: Of a plain HTTP answer; 0: it is not one, or no answer was sent.
        is_http: It is a request of plain HTTP.
    """

    call: rust.ServerCall
    known_id: str
    ended_at: float
    duration_s: float
    code: int
    http_status: int
    is_http: bool

    def request_id(self) -> str:
        """Return the id of the request, ``""`` when it has none."""
        return self.known_id or self._said(*_REQUEST_ID_KEYS)

    def traceparent(self) -> str:
        """Return its ``traceparent`` if it is sampled, else ``""``."""
        return self.call.traceparent

    def is_passed_on(self) -> bool:
        """Return whether an ingress has sent it, not a handle, a channel or the client itself."""
        call = self.call
        return call.trusted and not call.framed and call.host != _MESH_AUTHORITY

    def attempts(self) -> int:
        """Return how often it was sent to a replica, this time included."""
        text = self._said(_PREVIOUS_ATTEMPTS)
        return 1 + (int(text) if text.isdecimal() and len(text) < 4 else 0)

    def _said(self, *names: str) -> str:
        """Return the first value that the metadata, or headers, have under one of the names."""
        if self.is_http:
            headers = self.call.http_head().headers
            pairs = ((key.decode("latin-1"), value.decode("latin-1")) for key, value in headers)
        else:
            pairs = ((key, str(value)) for key, value in self.call.metadata())
        return next((value for key, value in pairs if key in names), "")

    def label(self) -> str:
        """Return what was asked for: ``/package.Service/Method``, or ``GET /path``."""
        if not self.is_http:
            return self.call.path
        head = self.call.http_head()
        return f"{head.method} {head.target.partition(b'?')[0].decode('latin-1')}"


OnEnd = Callable[[EndedCall], None]


class WatchedCall:
    """Stands for a ``rust.ServerCall``, and tells once that its end is queued.

    Args:
        call: The native call.
        on_end: Is told of the end; it must not raise.

    Attributes:
        call: As above.
        context: What handles the call, while it is handled.
    """

    __slots__ = ("_is_ended", "_on_end", "_status", "call", "context")

    def __init__(self, call: rust.ServerCall, on_end: OnEnd) -> None:
        self.call = call
        self._on_end = on_end
        self._status = 0
        self._is_ended = False
        self.context: Any = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self.call, name)

    def handled_by(self, context: EventReceiver | None) -> None:
        """Keep the context until the end, which another thread may bring meanwhile."""
        self.context = context
        if self._is_ended:
            self.context = None

    def reply(self, message: rust.Payload) -> bool:
        """See ``ServerCall``. If the ring rejects the payload, the call has not ended."""
        queued = self.call.reply(message)
        self._end(0)
        return queued

    def finish(
        self,
        code: int,
        details: str,
        trailing_metadata: rust.Metadata,
        message: rust.Payload | None,
    ) -> bool:
        """See ``ServerCall``."""
        queued = self.call.finish(code, details, trailing_metadata, message)
        self._end(code)
        return queued

    def respond(self, status: int, headers: rust.HttpHeaders, body: rust.Payload) -> bool:
        """See ``ServerCall``."""
        queued = self.call.respond(status, headers, body)
        self._status = status
        self._end(0)
        return queued

    def start_response(self, status: int, headers: rust.HttpHeaders) -> bool:
        """See ``ServerCall``."""
        self._status = status
        return self.call.start_response(status, headers)

    def release(self) -> bool:
        """See ``ServerCall``: the call was cancelled, and user code has ended."""
        self._end(_DEADLINE_EXCEEDED if self.call.time_remaining() == 0 else _CANCELLED)
        return self.call.release()

    def _end(self, code: int) -> None:
        if self._is_ended:
            return
        self._is_ended = True
        # Together with the call it is a cycle, which only the collector would free.
        source, self.context = self.context or CURRENT.get(), None
        self._on_end(self._ended(source, code))

    def _ended(self, source: Any, code: int) -> EndedCall:
        made = getattr(source, "request_made", None)
        known_id = getattr(source, "request_id", "") if made is None else made.request_id
        duration_s = self.call.elapsed()
        is_http = self._status != 0 or isinstance(source, HttpCall)
        return EndedCall(self.call, known_id, time.time(), duration_s, code, self._status, is_http)


def note_failure(call: rust.ServerCall, error: BaseException) -> None:
    """Note what the handler of a call has raised, if the call is traced and has not ended."""
    span = call.span
    if span is not None:
        span.fail(error)


def make_on_logged_call(
    inner: CallStarter, receivers: Mapping[int, EventReceiver], on_end: OnEnd
) -> CallStarter:
    """Return what starts calls as ``inner`` does, and tells the end of each.

    Args:
        inner: Starts a call.
        receivers: Where it puts what handles the call.
        on_end: Called once for each, on the thread that ends it; it must not raise.
    """

    def on_call(token: int, call: rust.ServerCall, message: bytes | None) -> None:
        watched = WatchedCall(call, on_end)
        inner(token, cast("rust.ServerCall", watched), message)
        watched.handled_by(receivers.get(token))

    return on_call
