"""Calls that are traced: each has a span from its arrival to its answer.

Only the native side's ``traceparent`` tells them from others, so a call that is not traced costs a
look at that attribute, and one in a process without tracing nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

from pyserve import _router
from pyserve.observe.traces.semantics import (
    http_attributes,
    http_name,
    peer_attributes,
    rpc_attributes,
)

if TYPE_CHECKING:
    from pyserve.bridge import CallStarter
    from pyserve.observe.traces.spans import ServerSpan, Spans

_CARRIED = ("traceparent", "tracestate", "baggage")
_CANCELLED = 1
_DEADLINE_EXCEEDED = 4


class TracedCall:
    """Stands for a ``_router.ServerCall``, and ends its span when the answer is queued.

    Attributes:
        span: From the arrival of the call.
    """

    def __init__(self, call: _router.ServerCall, span: ServerSpan) -> None:
        self._call = call
        self.span = span
        self._status = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._call, name)

    def reply(self, message: _router.Payload) -> bool:
        """See ``ServerCall``; a payload that the ring refuses is no end."""
        queued = self._call.reply(message)
        self.span.end_rpc(0, "")
        return queued

    def finish(
        self,
        code: int,
        details: str,
        trailing_metadata: _router.Metadata,
        message: _router.Payload | None,
    ) -> bool:
        """See ``ServerCall``."""
        queued = self._call.finish(code, details, trailing_metadata, message)
        if self._status and code == 0:
            self.span.end_http(self._status)
        else:
            self.span.end_rpc(code, details)
        return queued

    def respond(self, status: int, headers: _router.HttpHeaders, body: _router.Payload) -> bool:
        """See ``ServerCall``."""
        queued = self._call.respond(status, headers, body)
        self.span.end_http(status)
        return queued

    def start_response(self, status: int, headers: _router.HttpHeaders) -> bool:
        """See ``ServerCall``."""
        self._status = status
        return self._call.start_response(status, headers)

    def release(self) -> bool:
        """See ``ServerCall``: the call was cancelled, and user code has ended."""
        is_late = self._call.time_remaining() == 0
        self.span.end_rpc(_DEADLINE_EXCEEDED if is_late else _CANCELLED, "")
        return self._call.release()


def note_failure(call: object, error: BaseException) -> None:
    """Note what the handler of a call has raised, if the call is traced."""
    if isinstance(call, TracedCall):
        call.span.fail(error)


def make_on_traced_call(
    starters: list[CallStarter], http_number: int | None, spans: Spans
) -> CallStarter:
    """Return what starts every call of a server in a process that traces."""

    def on_call(token: int, call: _router.ServerCall, message: bytes | None) -> None:
        number = call.method
        if call.traceparent:
            is_http = number == http_number
            span, context = _serve_http(spans, call) if is_http else _serve_rpc(spans, call)
            traced = cast("_router.ServerCall", TracedCall(call, span))
            context.run(starters[number], token, traced, message)
        else:
            starters[number](token, call, message)

    return on_call


def _serve_rpc(spans: Spans, call: _router.ServerCall) -> Any:
    metadata = {key: str(value) for key, value in call.metadata() if key in _KEPT}
    path = call.path
    attributes = {**rpc_attributes(path), **peer_attributes(call.peer), **_asked(call, metadata)}
    return spans.serve(metadata, path.removeprefix("/"), attributes)


def _serve_http(spans: Spans, call: _router.ServerCall) -> Any:
    head = call.http_head()
    names = ((key.decode("latin-1"), value.decode("latin-1")) for key, value in head.headers)
    headers = {key: value for key, value in names if key in _KEPT}
    route = head.root_path or "/"
    attributes = {
        **http_attributes(head.method, route),
        **_asked(call, headers),
        "url.path": head.target.partition(b"?")[0].decode("latin-1"),
        "url.scheme": head.scheme,
        "network.protocol.version": head.version,
    }
    if head.client is not None:
        attributes["client.address"] = head.client[0]
    if "user-agent" in headers:
        attributes["user_agent.original"] = headers["user-agent"]
    return spans.serve(headers, http_name(head.method, route), attributes)


_KEPT = frozenset({*_CARRIED, "x-request-id", "user-agent"})


def _asked(call: _router.ServerCall, metadata: Mapping[str, str]) -> dict[str, str]:
    found = {"pyserve.model_id": call.model_id, "pyserve.request_id": metadata.get("x-request-id")}
    return {name: value for name, value in found.items() if value}
