"""What replicas have written down: when they were called, and from which zone."""

from __future__ import annotations

from collections import Counter
from pathlib import Path


def calls(folder: Path, begin_ns: int, end_ns: int) -> Counter[tuple[str, str]]:
    """Count the calls of a time, by the zones of caller and replica.

    Args:
        folder: Of the journals, whose names begin with the replica's zone and ``-``.
        begin_ns, end_ns: By ``time.monotonic_ns``, which all processes of a machine share.
    """
    found: Counter[tuple[str, str]] = Counter()
    for path in folder.iterdir():
        zone = path.name.partition("-")[0]
        for line in path.read_text().splitlines():
            at, _, caller = line.partition(" ")
            if begin_ns <= int(at) < end_ns:
                found[caller, zone] += 1
    return found


def share_that_stays(counted: Counter[tuple[str, str]]) -> float:
    """Return which share of the calls was answered in the caller's zone; without calls 0."""
    stayed = sum(number for (caller, zone), number in counted.items() if caller == zone)
    return stayed / total if (total := counted.total()) else 0.0
