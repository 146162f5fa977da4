"""Where the time of a call went, and why it ended as it did. Pure."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pyserve.admin.calls.store import Attempt, Call
from pyserve.admin.histograms import seconds, share
from pyserve.errors import RequestCancelled

FORMAT = 1
"""The version of the JSON; it changes when the meaning of a name does."""
# A span in a called replica is mentioned if it covers at least this share of the child's call.
_SHARE_WITHIN_MIN = 0.5
# Where a call waited less than this for a deployment, an outlier there does not explain it.
# Arbitrary.
_SHARE_OF_OUTLIER_MIN = 0.1
_SPANS_MAX = 500


@dataclass(frozen=True, slots=True)
class Known:
    """Information from replicas about a call, and about themselves.

    Attributes:
        delays: What the call waited for, by replica, see ``pyserve.observe.delays``; replicas of
            deployments that it called are among them.
        replicas: Those of each deployment that was asked, by "application/Deployment".
        outliers: What sets outliers among replicas apart, by id.
        nodes: The nodes of replicas that have not ended, by id.
        silent: Why replicas did not answer, by id.
    """

    delays: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    replicas: Mapping[str, Sequence[str]] = field(default_factory=dict)
    outliers: Mapping[str, str] = field(default_factory=dict)
    nodes: Mapping[str, str] = field(default_factory=dict)
    silent: Mapping[str, str] = field(default_factory=dict)


def explanation(call: Call, known: Known) -> dict[str, Any]:
    """Return where the time of a call went, as JSON."""
    spans = spans_of(call, known.delays)
    parts = _parts(call, spans, known)
    return {
        "format": FORMAT,
        **summary(call),
        "cause": parts[0] if parts else None,
        "parts": parts,
        "spans": [_span(span) for span in spans[:_SPANS_MAX]],
        "spans_left_out": len(spans[_SPANS_MAX:]),
        "attempts": [
            {
                "replica": each.replica_id,
                "node": known.nodes.get(each.replica_id, ""),
                "why": each.why,
                "outcome": each.outcome,
                "start_s": seconds(each.start_s),
                "duration_s": seconds(each.end_s - each.start_s),
            }
            for each in call.attempts
        ],
        "routing": _routing(call.explanation),
        "silent": dict(known.silent),
    }


def summary(call: Call) -> dict[str, Any]:
    """Return a summary of a call as JSON, without its payload and its caller."""
    last = deciding(call.attempts)
    return {
        "request_id": call.request_id,
        "kept_for": call.kept_for,
        "trace_id": call.trace_id,
        "door": call.door,
        "method": call.method,
        "target": call.target,
        "replica": "" if last is None else last.replica_id,
        "model_id": call.model_id,
        "started_at": round(call.started_at, 6),
        "duration_s": seconds(call.duration_s),
        "parked_s": seconds(call.parked_s),
        "code": call.code,
        "http_status": call.http_status,
        "refused": call.refused,
        "answered_by": call.answered_by,
        "reason": call.reason,
        "attempts_made": len(call.attempts),
        "request_bytes": call.request_bytes,
        "response_bytes": call.response_bytes,
    }


def called(delays: Mapping[str, Any]) -> set[str]:
    """Return the deployments that a call called in a replica, as "application/Deployment"."""
    found = {child["to"].rpartition(".")[0] for child in delays.get("calls", ())}
    for batch in delays.get("batches", ()):
        found |= called(batch.get("inside", {}))
    return found


def _parts(call: Call, spans: Sequence[Span], known: Known) -> list[dict[str, Any]]:
    """Return what took the time, the longest first; spans with the same text are one part."""
    taken: dict[tuple[str, str], float] = {}
    first: dict[tuple[str, str], Span] = {}
    for span, time_s in shares(call, spans).items():
        key = span.kind, span.text
        taken[key] = taken.get(key, 0.0) + time_s
        first.setdefault(key, span)
    return [
        {
            "kind": key[0],
            "text": _text(call, first[key], time_s, known),
            "replica": first[key].replica_id,
            "seconds": seconds(time_s),
            "share": share_of(time_s, call.duration_s),
        }
        for key, time_s in sorted(
            taken.items(), key=lambda item: (-round(item[1], 6), first[item[0]].start_s)
        )
    ]


def share_of(time_s: float, whole_s: float) -> float | None:
    """Return one time as a share of another."""
    return share(round(time_s * 1e9), round(whole_s * 1e9))


def _text(call: Call, span: Span, time_s: float, known: Known) -> str:
    """Return the words of a span that has so much of the time, with what is known besides."""
    more = ""
    if span.kind == "parked" and call.refused:
        more = f"; none came, and it was refused: {call.refused}"
    elif span.kind == "here" and (words := known.outliers.get(span.replica_id)):
        more = f", which is {words}" if words[0].isdigit() and "slow" in words else f" ({words})"
    elif span.kind == "call" and (within := _within(call, span, time_s, known)):
        more = f", which {within}"
    return span.text + more


def _within(call: Call, child: Span, time_s: float, known: Known) -> str:
    """Say what a called deployment's replica spent most of a child's call with."""
    found: list[tuple[float, str]] = []
    for replica_id in known.replicas.get(child.target, ()):
        spans = delay_spans(known.delays.get(replica_id, {}), call.started_at, replica_id, 0)
        for span in spans:
            overlap_s = min(span.end_s, child.end_s) - max(span.start_s, child.start_s)
            if overlap_s >= _SHARE_WITHIN_MIN * child.duration_s:
                found.append((overlap_s, f"{span.text} in {replica_id}"))
    if found:
        return max(found)[1]
    if time_s < _SHARE_OF_OUTLIER_MIN * call.duration_s:
        return ""
    found_ids = [name for name in known.replicas.get(child.target, ()) if name in known.outliers]
    # Which of them served the call is not recorded.
    if not found_ids:
        return ""
    return f"may have met an outlier: {found_ids[0]} is {known.outliers[found_ids[0]]}"


def _span(span: Span) -> dict[str, Any]:
    return {
        "kind": span.kind,
        "text": span.text,
        "replica": span.replica_id,
        "start_s": seconds(span.start_s),
        "duration_s": seconds(span.duration_s),
        "depth": span.depth,
    }


def _routing(text: str) -> Any:
    """Return the line of ``x-pyserve-explain`` as it is, or read if it can be."""
    if not text:
        return None
    try:
        return json.loads(text)
    except ValueError:
        return text


# Where the time of a call went: each moment of it belongs to one span.
#
# The ingress knows when the call came, was parked, tried and answered; replicas know what it waited
# for in them. Where spans of replicas overlap, the most informative one has the moment. The order
# is: code that blocks the event loop, and so everything; a load; a child's call; the wait for a
# batch; the batch's run; and last the bare fact that the call was at the replica.

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
