"""Calls that are traced: each has a span from its arrival to its answer.

Only the native side's ``traceparent`` tells them from others, so a call that is not traced costs a
look at that attribute, and one in a process without tracing nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

from pyserve import _router
from pyserve.aio._watched import WatchedCall
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


def make_on_traced_call(
    starters: list[CallStarter], http_number: int | None, spans: Spans
) -> CallStarter:
    """Return what starts every call of a server in a process that traces."""

    def on_call(token: int, call: _router.ServerCall, message: bytes | None) -> None:
        number = call.method
        if call.traceparent:
            is_http = number == http_number
            span, context = _serve_http(spans, call) if is_http else _serve_rpc(spans, call)
            context.run(starters[number], token, _traced(call, span), message)
        else:
            starters[number](token, call, message)

    return on_call


def _traced(call: _router.ServerCall, span: ServerSpan) -> _router.ServerCall:
    if isinstance(call, WatchedCall):  # It is logged as well.
        call.span = span
        return call
    return cast("_router.ServerCall", WatchedCall(call, span=span))


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
