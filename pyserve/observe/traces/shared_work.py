"""The spans of work that several calls share: batches, loads of models, steps.

A batch has no single caller. Its span is a child of the first traced one, so that it is in a trace
at all, and every traced one has a span of its own for the time that it waited for the batch; they
are linked to each other. A load has one span, linked to the traced calls that wait for it.

The span of a step of a continuously batched class is linked to its calls, but they do not link
back: a call may share more steps than a span may have links (128 by the SDK's default).
"""

from __future__ import annotations

import contextvars
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

from opentelemetry import trace
from opentelemetry.context import Context, attach, detach

from pyserve.observe.traces import IS_SAMPLED
from pyserve.observe.traces.served import record_failure
from pyserve.observe.traces.spans import Spans, current, end, entered, left, link
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

    def note_cost(self, cost: float) -> None:
        """See ``Source``."""
        self._source.note_cost(cost)


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


class SteppedCall:
    """The span of one traced call, from its arrival to its end. For any thread.

    Args:
        span: It.

    Attributes:
        steps: In which the call has taken part.
    """

    __slots__ = ("span", "steps")

    def __init__(self, span: Span) -> None:
        self.span = span
        self.steps = 0

    def note(self, event: str) -> None:
        """Add an event of this moment: ``admitted``, ``first value``, ``parked``, ...."""
        self.span.add_event(event)

    def end(self, values: int, error: BaseException | None) -> None:
        """End the span; ``values``: what the caller was sent."""
        said: dict[str, str | int] = {"pyserve.steps": self.steps, "pyserve.values": values}
        if error is not None:
            said["error.type"] = type(error).__qualname__
        end(self.span, said)


class RunningStep:
    """The span of a step that runs, in whose context it does.

    Args:
        span: It.
    """

    __slots__ = ("_is_sampled", "_span", "_token")

    def __init__(self, span: Span) -> None:
        self._span = span
        self._token = attach(trace.set_span_in_context(span, Context()))
        self._is_sampled = IS_SAMPLED.set(True)

    def end(self, error: BaseException | None) -> None:
        """End the span, in the context where it has begun; ``error``: what the step has raised."""
        IS_SAMPLED.reset(self._is_sampled)
        detach(self._token)
        end(self._span, {} if error is None else {"error.type": type(error).__qualname__})


class StepTraces:
    """Makes the spans of one class.

    Args:
        spans: Of this process.
        label: What messages call the class.
    """

    def __init__(self, spans: Spans, label: str) -> None:
        self._spans = spans
        self._label = label

    def call(self) -> SteppedCall | None:
        """Begin the span of the call that this code makes; ``None``: it is not traced."""
        if not IS_SAMPLED.get():
            return None
        said = {"pyserve.step.function": self._label}
        return SteppedCall(self._spans.begin(f"steps {self._label}", current(), attributes=said))

    def begin(
        self, members: Sequence[SteppedCall], *, size: int, key: object
    ) -> RunningStep | None:
        """Begin the span of a step in the context of this code.

        Args:
            members: The traced calls in it.
            size: How many calls there are in it.
            key: What they have in common; ``None``: the class has no keys.

        Returns:
            What ends it; ``None``: no call in it is traced.
        """
        if not members:
            return None
        said: dict[str, str | int] = {
            "pyserve.step.function": self._label,
            "pyserve.step.size": size,
        }
        if key is not None:
            said["pyserve.step.key"] = str(key)
        links = []
        for member in members:
            member.steps += 1
            links.append(member.span)
        name = f"step {self._label}"
        return RunningStep(self._spans.begin(name, links[0], links=links, attributes=said))

    def leave(self, context: contextvars.Context) -> None:
        """Let code that will run in ``context``, a copy of a call's, belong to no call."""
        left(context)
