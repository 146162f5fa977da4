"""Calls that are kept to be looked at: the newest of each kind.

The native side judges what is worth it; its slow calls are the slowest of the last minutes, so the
newest of them are those that matter.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from itertools import count

from pyserve.admin.calls.records import Call, read_record
from pyserve.observe.records import CallRecord

KEPT_MAX = 1000
"""Of each kind, see ``CallRecord.kept_for``."""

KINDS = ("asked", "failed", "slow", "sampled")


class CallStore:
    """Bounded; for one thread. Records are read when somebody wants to see them: most are not."""

    def __init__(self, kept_max: int = KEPT_MAX) -> None:
        self._kept_max = kept_max
        self._newest: dict[str, OrderedDict[int, CallRecord]] = {
            kind: OrderedDict() for kind in KINDS
        }
        self._numbers = count()

    def add(self, records: Iterable[CallRecord]) -> None:
        """Keep those of finished calls that were kept for a reason of ``KINDS``."""
        for record in records:
            newest = self._newest.get(record.kept_for)
            if newest is not None:
                newest[next(self._numbers)] = record
                if len(newest) > self._kept_max:
                    newest.popitem(last=False)

    def of_kind(self, kind: str) -> list[CallRecord]:
        """Return what was kept for one reason: the slowest first, of others the newest."""
        newest = self._newest[kind].values()
        if kind == "slow":
            return sorted(newest, key=lambda record: record.duration_ns, reverse=True)
        return list(reversed(newest))

    def find(self, request_id: str) -> list[Call]:
        """Return calls of one id, the newest first; clients may use an id again."""
        found = [
            (number, record)
            for newest in self._newest.values()
            for number, record in newest.items()
            if record.request_id == request_id
        ]
        found.sort(key=lambda item: item[0], reverse=True)
        return [read_record(record) for _, record in found]
