"""The spans of batches: one of each, linked to the calls in it and they to it.

A batch has no single caller. Its span is a child of the first traced one, so that it is in a
trace at all, and every traced one has a span of its own for the time that it waited for company.
"""

from __future__ import annotations

import contextvars
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

from pyserve.observe.traces.spans import Spans, current, end, entered, link
from pyserve.request import Request, Source

if TYPE_CHECKING:
    from opentelemetry.trace import Span


class LeavingBatch(Protocol):
    """What these spans say of a batch."""

    @property
    def items(self) -> Sequence[Any]:
        """The calls; each has a ``source``."""

    @property
    def reason(self) -> str:
        """Why it leaves."""

    @property
    def key(self) -> str:
        """Its model, or ``""``."""


class BatchMember:
    """The source of a traced call's request while the call waits for a batch."""

    __slots__ = ("_source", "since_unix_ns", "span")

    def __init__(self, source: Source) -> None:
        self._source = source
        self.span = current()
        self.since_unix_ns = time.time_ns()

    def request(self) -> Request:
        """See ``Source``."""
        return self._source.request()

    def model_and_deadline(self) -> tuple[str, float | None]:
        """See ``Source``."""
        return self._source.model_and_deadline()


class BatchTraces:
    """The spans of one function's batches; used on the loop of the batches.

    Args:
        spans: Of this process.
        label: What messages call the function.
    """

    def __init__(self, spans: Spans, label: str) -> None:
        self._spans = spans
        self._label = label
        self._running: dict[object, Span] = {}

    def member(self, source: Source) -> Source:
        """Return what stands for the source of a traced call that begins to wait now."""
        return BatchMember(source)

    def begin(self, run: object, batch: LeavingBatch, context: contextvars.Context) -> None:
        """Begin the span of a batch that runs now in ``context``, if a member is traced."""
        members = [call.source for call in batch.items if type(call.source) is BatchMember]
        if not members:
            return
        attributes: dict[str, str | int] = {
            "pyserve.batch.function": self._label,
            "pyserve.batch.size": len(batch.items),
            "pyserve.batch.reason": str(batch.reason),
        }
        if batch.key:
            attributes["pyserve.model_id"] = batch.key
        links = [member.span for member in members]
        span = self._spans.begin(
            f"batch {self._label}", links[0], links=links, attributes=attributes
        )
        for member in members:
            self._end_wait(member, span, attributes)
        self._running[run] = span
        entered(span, context)

    def _end_wait(self, member: BatchMember, batch: Span, attributes: dict[str, str | int]) -> None:
        link(member.span, batch.get_span_context())
        waited = self._spans.begin(
            f"wait for batch {self._label}",
            member.span,
            links=[batch],
            attributes=attributes,
            start_unix_ns=member.since_unix_ns,
        )
        end(waited, {})

    def end(self, run: object, *, has_failed: bool) -> bool:
        """End the span of a run, and return whether it had one."""
        span = self._running.pop(run, None) if self._running else None
        if span is not None:
            end(span, {"error.type": "BatchError"} if has_failed else {})
        return span is not None
