"""The spans of model loads: one of each load, linked to the traced calls that wait for it."""

from __future__ import annotations

import contextvars
import time
from typing import TYPE_CHECKING

from pyserve.observe.traces.sampled import IS_SAMPLED
from pyserve.observe.traces.served import record_failure
from pyserve.observe.traces.spans import Spans, current, end, entered, left, link

if TYPE_CHECKING:
    from opentelemetry.trace import Span


class LoadTraces:
    """The spans of one loader's loads, by model; used on the loader's loop.

    A load is a child of the first traced call that waits for it. One that no traced call has
    asked for has no span until one waits, and then its true start.

    Args:
        spans: Of this process.
        label: What messages call the loader.
    """

    def __init__(self, spans: Spans, label: str) -> None:
        self._spans = spans
        self._label = label
        # Per model that is not loaded: the spans that wait for its load, its start, and its span.
        self._waiting: dict[str, list[Span]] = {}
        self._begun_unix_ns: dict[str, int] = {}
        self._loading: dict[str, Span] = {}

    def wait(self, model_id: str) -> None:
        """Note that the running code waits for a load."""
        if not IS_SAMPLED.get():
            return
        span = self._loading.get(model_id)
        if span is not None:
            link(current(), span.get_span_context())
            return
        self._waiting.setdefault(model_id, []).append(current())
        if model_id in self._begun_unix_ns:
            self._open(model_id)

    def begin(self, model_id: str, context: contextvars.Context) -> None:
        """Note that a load begins now, in ``context``."""
        self._begun_unix_ns[model_id] = time.time_ns()
        if model_id in self._waiting:
            entered(self._open(model_id), context)
        else:
            left(context)

    def end(self, model_id: str, error: BaseException | None) -> None:
        """Note that a load has ended."""
        self._begun_unix_ns.pop(model_id, None)
        span = self._loading.pop(model_id, None)
        if span is not None:
            if error is not None:
                record_failure(span, error)
            end(span, {} if error is None else {"error.type": type(error).__qualname__})

    def give_up(self, model_id: str) -> None:
        """Note that nobody waits any more for a load that has not begun."""
        self._waiting.pop(model_id, None)

    def _open(self, model_id: str) -> Span:
        waiting = self._waiting.pop(model_id)
        span = self._loading[model_id] = self._spans.begin(
            f"load {self._label}",
            waiting[0],
            links=waiting,
            attributes={"pyserve.model_id": model_id, "pyserve.loader": self._label},
            start_unix_ns=self._begun_unix_ns[model_id],
        )
        for each in waiting:
            link(each, span.get_span_context())
        return span
