"""The ingress's records of finished calls, as plain values in seconds. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from pyserve.observe.records import CallRecord

_NANOS = 1e9


@dataclass(frozen=True, slots=True)
class Attempt:
    """One attempt at a replica; times in seconds from the call's start.

    Attributes:
        replica_id: Which replica.
        start_s, end_s: From when to when.
        head_s: When the head of its answer came; ``None``: never.
        why: ``first``, ``retry``, ``hedge`` or another word of the native side.
        outcome: ``ok`` or another word of the native side.
    """

    replica_id: str
    start_s: float
    end_s: float
    head_s: float | None
    why: str
    outcome: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A finished call.

    Attributes:
        method: ``/pkg.Service/Method``; of plain HTTP the verb, and the route or its prefix.
        path: Of plain HTTP what was asked for, without the query; else "".
        target: "application/Deployment"; "": none was found.
        started_at: Unix time.
        duration_s: Of the whole call.
        parked_s: The part of it in the router, before attempts and between them.
        refused: Why no replica took it; "": one did.
    """

    request_id: str
    kept_for: str
    trace_id: str
    door: str
    method: str
    path: str
    target: str
    model_id: str
    started_at: float
    duration_s: float
    parked_s: float
    code: int
    http_status: int
    refused: str
    answered_by: str
    request_bytes: int
    response_bytes: int
    explanation: str
    attempts: tuple[Attempt, ...]


def read_record(record: CallRecord) -> Call:
    """Read a record."""
    target = f"{record.application}/{record.deployment}" if record.deployment else ""
    return Call(
        request_id=record.request_id,
        kept_for=record.kept_for,
        trace_id=record.trace_id.hex(),
        door=record.door,
        method=record.method,
        path=record.path,
        target=target,
        model_id=record.model_id,
        started_at=record.start_unix_ns / _NANOS,
        duration_s=record.duration_ns / _NANOS,
        parked_s=record.parked_ns / _NANOS,
        code=record.code,
        http_status=record.http_status,
        refused=record.refused,
        answered_by=record.answered_by,
        request_bytes=record.request_bytes,
        response_bytes=record.response_bytes,
        explanation=record.explanation,
        attempts=tuple(
            Attempt(
                replica_id=replica_id,
                start_s=start / _NANOS,
                end_s=end / _NANOS,
                head_s=None if head < 0 else head / _NANOS,
                why=why,
                outcome=outcome,
            )
            for replica_id, _, start, head, end, why, outcome in record.attempts
        ),
    )
