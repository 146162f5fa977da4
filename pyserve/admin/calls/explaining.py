"""Why a call took as long as it did, and why it ended as it did. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pyserve.admin.calls.records import Call
from pyserve.admin.calls.timeline import Span, deciding, delay_spans, shares, spans_of
from pyserve.admin.rounding import seconds, share

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
