"""Which sampled call was the last in each bucket of a histogram: from a number to a trace."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

from pyserve.observe.metrics.families import Exemplar
from pyserve.observe.metrics.tally import TIME_BOUNDS_S

_NS = 1e9
# Codes of gRPC (google.rpc.Code) and statuses that blame the replica and not the request, as the
# router's own histograms have it (`router_rs/dispatch/src/outcome.rs`).
_FAILED_CODES = frozenset({2, 4, 8, 13, 14, 15})
_FAILED_STATUSES = frozenset({500, 502, 503, 504})


class SampledCall(Protocol):
    """The fields of ``rust.CallRecord`` that are read here."""

    @property
    def application(self) -> str: ...
    @property
    def deployment(self) -> str: ...
    @property
    def trace_id(self) -> bytes: ...
    @property
    def is_sampled(self) -> bool: ...
    @property
    def start_unix_ns(self) -> int: ...
    @property
    def duration_ns(self) -> int: ...
    @property
    def code(self) -> int: ...
    @property
    def http_status(self) -> int: ...


class Exemplars:
    """The last sampled call by deployment, outcome and bucket.

    One thread takes and keeps; others may look meanwhile.
    """

    def __init__(self) -> None:
        self._found: dict[str, dict[str, dict[int, Exemplar]]] = {}

    def take(self, records: Sequence[SampledCall]) -> None:
        """Take calls that have ended, oldest first."""
        for record in records:
            if record.is_sampled and record.trace_id and record.deployment:
                self._take(record)

    def of(self, target: str, outcome: str) -> Mapping[int, Exemplar]:
        """Return those of one deployment and outcome, by the numbers of their buckets."""
        return self._found.get(target, {}).get(outcome, {})

    def keep(self, targets: Collection[str]) -> None:
        """Forget all deployments but ``targets``."""
        for gone in self._found.keys() - set(targets):
            del self._found[gone]

    def _take(self, record: SampledCall) -> None:
        failed = record.code in _FAILED_CODES or record.http_status in _FAILED_STATUSES
        took_s = record.duration_ns / _NS
        ended_at = (record.start_unix_ns + record.duration_ns) / _NS
        by_outcome = self._found.setdefault(f"{record.application}/{record.deployment}", {})
        by_bucket = by_outcome.setdefault("failed" if failed else "ok", {})
        by_bucket[bisect_left(TIME_BOUNDS_S, took_s)] = (record.trace_id.hex(), took_s, ended_at)
