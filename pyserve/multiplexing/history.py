"""Statistics of models, loaded or not: use, size, load time, eviction, failure.

Pure. Ids come from clients, so the memory of unloaded ones is bounded.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

# A frequency halves with every this many uses of the cache (arbitrary: some hundred uses suffice to
# find the popular models of a cache of dozens).
HALF_LIFE_USES = 1000
# After the first failure; doubles with each further one (as replicas are restarted).
BACKOFF_S_MIN = 1.0
BACKOFF_S_MAX = 60.0
# Ids remembered; a record has about 250 bytes. The least recently used one is forgotten.
RECORDS_MAX = 4096


@dataclass(slots=True, eq=False)
class Record:
    """The statistics of one model id.

    Attributes:
        used_at_use: Number of the cache's use at which it was last used.
        uses: Its uses, decayed, as of ``used_at_use``.
        size_bytes, load_s: Of the last load; 0 before.
        hits, misses, loads, evictions: How often, while it has been remembered.
        failure_count: Failed loads in a row.
        failure: The last one of them.
    """

    used_at_use: int = 0
    uses: float = 0.0
    size_bytes: int = 0
    load_s: float = 0.0
    failure_count: int = 0
    failure: Failure | None = None
    hits: int = 0
    misses: int = 0
    loads: int = 0
    evictions: int = 0


@dataclass(frozen=True, slots=True)
class Failure:
    """A load that failed: why, and from when on it is tried again.

    Attributes:
        answer: what those get who ask until then; None: that it has failed.
    """

    cause: str
    retry_at: float
    answer: Exception | None = None


class History:
    """The records of one cache."""

    def __init__(self) -> None:
        self._records: OrderedDict[str, Record] = OrderedDict()
        self._uses = 0
        self._size_bytes_max = 0

    def use(self, model_id: str, known: Record | None = None) -> Record:
        """Count one use; ``known`` is the record of a loaded model, which is never lost."""
        record = self._record(model_id, known)
        self._uses += 1
        record.uses = self.frequency(record) + 1.0
        record.used_at_use = self._uses
        return record

    def frequency(self, record: Record) -> float:
        """Return the decayed number of uses as of now."""
        return float(record.uses * 0.5 ** ((self._uses - record.used_at_use) / HALF_LIFE_USES))

    def loaded(self, model_id: str, *, size_bytes: int, load_s: float) -> Record:
        """Remember a successful load."""
        record = self._record(model_id)
        record.size_bytes, record.load_s = size_bytes, load_s
        record.failure_count, record.failure = 0, None
        self._size_bytes_max = max(self._size_bytes_max, size_bytes)
        return record

    def expected_bytes(self, model_id: str) -> int:
        """Return the size that a load will need, 0 if nothing was ever loaded."""
        record = self._records.get(model_id)
        return (record.size_bytes if record else 0) or self._size_bytes_max

    def evicted(self, model_id: str) -> None:
        """Remember an eviction."""
        self._record(model_id).evictions += 1

    def failed(
        self, model_id: str, cause: str, now: float, answer: Exception | None = None
    ) -> Failure:
        """Remember a failed load."""
        record = self._record(model_id)
        # The exponent is bounded, so that a power of it never overflows.
        pause_s = min(BACKOFF_S_MAX, BACKOFF_S_MIN * 2.0 ** min(record.failure_count, 30))
        record.failure_count += 1
        record.failure = Failure(cause, now + pause_s, answer)
        return record.failure

    def failure(self, model_id: str, now: float) -> Failure | None:
        """Return the last failure while it is too recent to try again."""
        record = self._records.get(model_id)
        if record is None or record.failure is None or now >= record.failure.retry_at:
            return None
        return record.failure

    def _record(self, model_id: str, known: Record | None = None) -> Record:
        record = self._records.get(model_id)
        if record is None:
            record = self._records[model_id] = known or Record()
            if len(self._records) > RECORDS_MAX:
                self._records.popitem(last=False)
        else:
            self._records.move_to_end(model_id)
        return record
