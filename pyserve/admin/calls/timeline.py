"""Where the time of a call went: each moment of it belongs to one span. Pure.

The ingress knows when the call came, was parked, tried and answered; replicas know what it waited
for in them. Where spans of replicas overlap, the most informative one has the moment. The order is:
code that blocks the event loop, and so everything; a load; a child's call; the wait for a batch;
the batch's run; and last the bare fact that the call was at the replica.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyserve.admin.calls.records import Attempt, Call
from pyserve.errors import RequestCancelled

# The most informative first. "here" is the rest: the call was at the replica.
_SAYS_MOST = ("stall", "load", "call", "batch_wait", "batch_run", "answer", "here")


@dataclass(frozen=True, slots=True)
class Span:
    """A part of a call's time; seconds from the call's start.

    Attributes:
        kind: ``request``, ``parked``, ``between``, ``attempt`` (one before the last),
            ``stall``, ``load``, ``call``, ``batch_wait``, ``batch_run``, ``answer``, ``here``,
            ``end``.
        start_s, end_s: From when to when.
        text: What happened, for people.
        replica_id: Where; "": in the router.
        target: Who was called, of a ``call``.
        depth: How far below the call it is.
    """

    kind: str
    start_s: float
    end_s: float
    text: str
    replica_id: str = ""
    target: str = ""
    depth: int = 0

    @property
    def duration_s(self) -> float:
        """How long it took."""
        return self.end_s - self.start_s


def spans_of(call: Call, delays: Mapping[str, Mapping[str, Any]]) -> list[Span]:
    """Return the spans of a call, in the order of their starts; those inside others come later.

    Args:
        call: As the ingress knows it.
        delays: What it waited for in replicas, by their ids, see ``pyserve.observe.delays``.
    """
    last = deciding(call.attempts)
    found = [*_before(call, last)]
    for attempt in call.attempts:
        if attempt is not last:
            words = f"an attempt at {attempt.replica_id} that ended {attempt.outcome}"
            found.append(Span("attempt", attempt.start_s, attempt.end_s, words, attempt.replica_id))
    if last is not None:
        found += _at_replica(call, last, delays.get(last.replica_id, {}))
        if call.duration_s > last.end_s:
            found.append(Span("end", last.end_s, call.duration_s, "the answer was handed over"))
    return sorted(found, key=lambda span: (span.start_s, span.depth))


def deciding(attempts: Sequence[Attempt]) -> Attempt | None:
    """Return the attempt whose answer the client got, else the last."""
    good = [attempt for attempt in attempts if attempt.outcome in ("ok", "failed")]
    return good[-1] if good else attempts[-1] if attempts else None


def shares(call: Call, spans: Sequence[Span]) -> dict[Span, float]:
    """Return how many seconds each span has for itself; together that is the call's time."""
    found: dict[Span, float] = {}
    edges = {0.0, call.duration_s}
    edges |= {edge for span in spans for edge in (span.start_s, span.end_s)}
    ordered = sorted(edge for edge in edges if 0.0 <= edge <= call.duration_s)
    for start, end in itertools.pairwise(ordered):
        there = [span for span in spans if span.start_s <= start and end <= span.end_s]
        if there:
            span = min(there, key=_weight)
            found[span] = found.get(span, 0.0) + end - start
    return found


def _weight(span: Span) -> tuple[int, float]:
    """Order spans that share a moment: the smallest one has it."""
    says = _SAYS_MOST.index(span.kind) if span.kind in _SAYS_MOST else len(_SAYS_MOST)
    # Of two of a kind, the call waits for the one that ends later.
    return says, -span.end_s


def _before(call: Call, last: Attempt | None) -> Iterator[Span]:
    """Yield what happened while no replica had the call: it came, was parked, or backed off."""
    left_s = call.parked_s
    for start, end in _gaps(call, last):
        parked_s = min(left_s, end - start)
        left_s -= parked_s
        if end - start > parked_s:
            words = "its request came" if start == 0.0 else "a pause before another attempt"
            kind = "request" if start == 0.0 else "between"
            yield Span(kind, start, end - parked_s, words)
        if parked_s:
            where = f" of {call.target}" if call.target else ""
            yield Span("parked", end - parked_s, end, f"waited for a free replica{where}")


def _gaps(call: Call, last: Attempt | None) -> Iterator[tuple[float, float]]:
    at = 0.0
    until = call.duration_s if last is None else last.start_s
    for attempt in sorted(call.attempts, key=lambda each: each.start_s):
        if attempt.start_s > at:
            yield at, min(attempt.start_s, until)
        if attempt is last:
            return
        at = max(at, attempt.end_s)
    if until > at:
        yield at, until


def _at_replica(call: Call, last: Attempt, delays: Mapping[str, Any]) -> Iterator[Span]:
    answered_at = last.end_s if last.head_s is None else last.head_s
    name = last.replica_id
    yield Span("here", last.start_s, answered_at, f"ran in {name}", name)
    if last.end_s > answered_at:
        words = f"the answer of {name} came, from its head to its end"
        yield Span("answer", answered_at, last.end_s, words, name)
    stalls = _stall_spans(delays, call.started_at, name)
    for span in (*stalls, *delay_spans(delays, call.started_at, name, 1)):
        start, end = max(span.start_s, last.start_s), min(span.end_s, last.end_s)
        if end > start:
            yield Span(span.kind, start, end, span.text, name, span.target, span.depth)


def _stall_spans(delays: Mapping[str, Any], started_at: float, replica_id: str) -> Iterator[Span]:
    for stall in delays.get("stalls", ()):
        start = stall["begun_at"] - started_at
        words = f"waited for the event loop of {replica_id}, which {stall['place']} held"
        yield Span("stall", start, start + stall["duration_s"], words, replica_id, depth=1)


def delay_spans(
    delays: Mapping[str, Any], started_at: float, replica_id: str, depth: int
) -> Iterator[Span]:
    """Yield what a call waited for in one replica, in seconds from ``started_at``."""
    for load in delays.get("loads", ()):
        start = load["begun_at"] - started_at
        words = f"waited for the model {load['model_id']} to be loaded by {load['loader']}"
        yield Span("load", start, start + load["waited_s"], words, replica_id, depth=depth)
    for batch in delays.get("batches", ()):
        yield from _batch_spans(batch, started_at, replica_id, depth)
    for child in delays.get("calls", ()):
        start = child["begun_at"] - started_at
        yield Span(
            "call",
            start,
            start + child["duration_s"],
            f"called {child['to']}{_end_of(child['error'])}",
            replica_id,
            child["to"].rpartition(".")[0],
            depth,
        )


def _end_of(error: str) -> str:
    """Return how a call of a handle has ended, by the type of what came instead of its answer."""
    if error == RequestCancelled.__name__:  # Mostly because its caller has left.
        return " (it was cancelled)"
    return f" (it raised {error})" if error else ""


def _batch_spans(
    batch: Mapping[str, Any], started_at: float, replica_id: str, depth: int
) -> Iterator[Span]:
    start = batch["begun_at"] - started_at
    left = start + batch["waited_s"]
    size = f"{batch['size']} call{'' if batch['size'] == 1 else 's'}"
    why = REASONS.get(batch["reason"], batch["reason"])
    words = f"waited for a batch of {batch['function']}, which left with {size} because {why}"
    yield Span("batch_wait", start, left, words, replica_id, depth=depth)
    words = f"a batch of {batch['function']} with {size} ran"
    yield Span("batch_run", left, left + batch["ran_s"], words, replica_id, depth=depth)
    yield from delay_spans(batch.get("inside", {}), started_at, replica_id, depth + 1)


REASONS = {
    "full": "it was full",
    "idle": "the function was idle",
    "window": "its window had passed (batch_wait_timeout_s)",
    "deadline": "a deadline came near",
    "stride": "the tick of stride_s came",
    "drain": "the replica was to end",
    "flush": "somebody asked it to",
}
"""Why batches are released, by the words of ``pyserve.batching.batcher.Reason``."""
