"""Keeps calls for inspection: the newest of each kind, and the slowest recent ones. Pure.

The native side decides which calls to keep; ``CallRecord`` is what it hands over of each.
"""

from __future__ import annotations

import heapq
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, count
from typing import Protocol

KEPT_MAX = 1000
"""Of each kind, see ``CallRecord.kept_for``."""
SLOW_FOR_S = 600.0
"""How long a call may be among the slowest: two of the native side's intervals for judging."""
KINDS = ("asked", "failed", "slow", "sampled")
_NANOS = 1_000_000_000


class CallStore:
    """Bounded; for one thread. Records are parsed only when they are viewed: most never are."""

    def __init__(self, kept_max: int = KEPT_MAX) -> None:
        self._kept_max = kept_max
        self._newest: dict[str, OrderedDict[int, CallRecord]] = {
            kind: OrderedDict() for kind in KINDS if kind != "slow"
        }
        self._slowest = _Slowest(kept_max)
        self._numbers = count()

    def add(self, records: Iterable[CallRecord]) -> None:
        """Keep those of finished calls that were kept for a reason of ``KINDS``."""
        for record in records:
            if record.kept_for == "slow":
                self._slowest.add(next(self._numbers), record)
                continue
            newest = self._newest.get(record.kept_for)
            if newest is not None:
                newest[next(self._numbers)] = record
                if len(newest) > self._kept_max:
                    newest.popitem(last=False)

    def of_kind(self, kind: str) -> list[CallRecord]:
        """Return the calls kept for one reason: slow ones by duration, others the newest first."""
        if kind == "slow":
            found = [record for _, record in self._slowest.of_late()]
            return sorted(found, key=lambda record: record.duration_ns, reverse=True)
        return list(reversed(self._newest[kind].values()))

    def find(self, request_id: str) -> list[Call]:
        """Return calls of one id, the newest first; clients may use an id again."""
        kept = chain(self._slowest.of_late(), *(newest.items() for newest in self._newest.values()))
        found = [(number, record) for number, record in kept if record.request_id == request_id]
        found.sort(key=lambda item: item[0], reverse=True)
        return [read_record(record) for _, record in found]


class _Slowest:
    """The slowest calls of the last ``SLOW_FOR_S``, by the times at which they ended."""

    def __init__(self, kept_max: int) -> None:
        self._kept_max = kept_max
        self._heap: list[tuple[int, int, CallRecord]] = []  # The fastest is the first.
        self._newest_ns = 0
        self._looked_ns = 0

    def add(self, number: int, record: CallRecord) -> None:
        """Add one; if that makes too many, an old one or the fastest is dropped."""
        self._newest_ns = max(self._newest_ns, _ended_ns(record))
        heapq.heappush(self._heap, (record.duration_ns, number, record))
        if len(self._heap) > self._kept_max:
            self._forget_old()
        if len(self._heap) > self._kept_max:
            heapq.heappop(self._heap)

    def of_late(self) -> Iterator[tuple[int, CallRecord]]:
        """Yield their numbers and themselves, in any order."""
        for _, number, record in self._heap:
            if self._is_of_late(record):
                yield number, record

    def _forget_old(self) -> None:
        # A look at each of them: not for every call of a busy second.
        if self._newest_ns - self._looked_ns >= _NANOS:
            self._looked_ns = self._newest_ns
            self._heap = [each for each in self._heap if self._is_of_late(each[2])]
            heapq.heapify(self._heap)

    def _is_of_late(self, record: CallRecord) -> bool:
        return self._newest_ns - _ended_ns(record) <= SLOW_FOR_S * _NANOS


def _ended_ns(record: CallRecord) -> int:
    return record.start_unix_ns + record.duration_ns


# The ingress's records of finished calls, as plain values in seconds.

_NANOS_PER_S = 1e9


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
        reason: Why the ingress told the client something else than the replica; "": it did not.
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
    reason: str
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
        started_at=record.start_unix_ns / _NANOS_PER_S,
        duration_s=record.duration_ns / _NANOS_PER_S,
        parked_s=record.parked_ns / _NANOS_PER_S,
        code=record.code,
        http_status=record.http_status,
        refused=record.refused,
        answered_by=record.answered_by,
        reason=record.reason,
        request_bytes=record.request_bytes,
        response_bytes=record.response_bytes,
        explanation=record.explanation,
        attempts=tuple(
            Attempt(
                replica_id=replica_id,
                start_s=start / _NANOS_PER_S,
                end_s=end / _NANOS_PER_S,
                head_s=None if head < 0 else head / _NANOS_PER_S,
                why=why,
                outcome=outcome,
            )
            for replica_id, _, start, head, end, why, outcome in record.attempts
        ),
    )


# Replica, span, start, head of the answer (-1: none), end, why, outcome.
NativeAttempt = tuple[str, bytes, int, int, int, str, str]


class CallRecord(Protocol):
    """The fields of ``pyserve._router.CallRecord`` that are read; they are documented there."""

    @property
    def request_id(self) -> str: ...
    @property
    def kept_for(self) -> str: ...
    @property
    def trace_id(self) -> bytes: ...
    @property
    def span_id(self) -> bytes: ...
    @property
    def parent_id(self) -> bytes: ...
    @property
    def tracestate(self) -> str: ...
    @property
    def is_sampled(self) -> bool: ...
    @property
    def door(self) -> str: ...
    @property
    def method(self) -> str: ...
    @property
    def path(self) -> str: ...
    @property
    def application(self) -> str: ...
    @property
    def deployment(self) -> str: ...
    @property
    def peer(self) -> str: ...
    @property
    def model_id(self) -> str: ...
    @property
    def start_unix_ns(self) -> int: ...
    @property
    def duration_ns(self) -> int: ...
    @property
    def parked_ns(self) -> int: ...
    @property
    def first_byte_ns(self) -> int: ...
    @property
    def code(self) -> int: ...
    @property
    def http_status(self) -> int: ...
    @property
    def refused(self) -> str: ...
    @property
    def answered_by(self) -> str: ...
    @property
    def reason(self) -> str: ...
    @property
    def request_bytes(self) -> int: ...
    @property
    def response_bytes(self) -> int: ...
    @property
    def explanation(self) -> str: ...
    @property
    def attempts(self) -> Sequence[NativeAttempt]: ...
