"""Calls that are traced: each has a span from its arrival to its answer.

Only the native side's ``traceparent`` tells them from others, so a call that is not traced costs a
look at that attribute, and one in a process without tracing nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from pyserve.aio._watched import WatchedCall
from pyserve.bridge import rust

if TYPE_CHECKING:
    from pyserve.bridge import CallStarter
    from pyserve.observe.traces.spans import Spans


def make_on_traced_call(starters: list[CallStarter], spans: Spans) -> CallStarter:
    """Return what starts every call of a server in a process that traces."""

    def on_call(token: int, call: rust.ServerCall, message: bytes | None) -> None:
        start = starters[call.method]
        if call.traceparent:
            watched = _watched(call)
            watched.span, context = spans.serve(watched.call)
            context.run(start, token, cast("rust.ServerCall", watched), message)
        else:
            start(token, call, message)

    return on_call


def _watched(call: rust.ServerCall) -> WatchedCall:
    if isinstance(call, WatchedCall):  # It is logged as well.
        return call
    return WatchedCall(call)
