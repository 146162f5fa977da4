"""Gathers and merges the metrics of one node's processes.

Processes of one user and node share a home directory, in which each mesh and each ingress has a run
folder. If several processes have an admin server, one of the servers asks all processes, and the
others only their own: so nothing is scraped twice.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from pyserve.observe.metrics import Family, ProcessMetrics, Sample, Scrape
from pyserve.observe.metrics.answering import mark_of
from pyserve.observe.metrics.asking import Gathered, gather

# The time that a node's processes may take; if one does not answer, only its lines are missing.
TIMEOUT_S = 1.0
_LOCK = "metrics.lock"
_RUN_FOLDERS = ("run", "mesh-*")


class NodeGathering:
    """Asks the processes of this node.

    Args:
        own: Of this process.
        token: Of the mesh, whose processes alone count.
        home: Where run folders are; ``None``: this process is alone on its node.
        run_dir: That of this mesh, which need not lie in ``home``.
    """

    def __init__(
        self, own: ProcessMetrics, token: bytes, home: Path | None, run_dir: Path | None = None
    ) -> None:
        self._own = own
        self._mark = mark_of(token)
        self._home = home
        self._run_dir = run_dir
        self._lock = -1

    async def gather(self) -> list[Family]:
        """Return the metrics of all of them, as if one process had counted everything."""
        begun = time.monotonic()
        found = Gathered()
        if self._home is not None and self._asks_all(self._home):
            found = await gather(self._folders(self._home), self._mark, TIMEOUT_S)
        scrape = Scrape({})
        scrape.add("pyserve_scrape_processes", found.answered + 1, state="answered")
        scrape.add("pyserve_scrape_processes", found.silent, state="silent")
        scrape.add("pyserve_scrape_duration_seconds", time.monotonic() - begun)
        return merged([self._own.collect(), *found.families, scrape.families()])

    def close(self) -> None:
        """Let another process ask all of them. Idempotent."""
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def _asks_all(self, home: Path) -> bool:
        """Return whether this is the process of the node that asks the others."""
        if self._lock < 0:
            lock = os.open(home / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(lock)
                return False
            self._lock = lock
        return True

    def _folders(self, home: Path) -> Iterable[Path]:
        found = {path for pattern in _RUN_FOLDERS for path in home.glob(pattern)}
        return sorted(found if self._run_dir is None else found | {self._run_dir})


def merged(parts: Iterable[Sequence[Family]]) -> list[Family]:
    """Return families of one name as one, in the order of their names.

    Samples with the same labels are added up: they are counts of processes that do not say who
    they are. Families of one name and several kinds have the kind ``unknown``.
    """
    found: dict[str, Family] = {}
    for part in parts:
        for family in part:
            known = found.setdefault(family.name, Family(family.name, family.kind, family.text))
            if known.kind != family.kind:
                known.kind = "unknown"
            known.samples += family.samples
    for family in found.values():
        family.samples = _added_up(family.samples)
    return [found[name] for name in sorted(found)]


def _added_up(samples: Iterable[Sample]) -> list[Sample]:
    found: dict[tuple[str, frozenset[tuple[str, str]]], Sample] = {}
    for sample in samples:
        key = sample.suffix, _key(sample.labels)
        known = found.get(key)
        if known is None:
            found[key] = sample
        else:
            exemplar = known.exemplar or sample.exemplar
            value = known.value + sample.value
            found[key] = Sample(sample.suffix, sample.labels, value, exemplar)
    return list(found.values())


def _key(labels: Mapping[str, str]) -> frozenset[tuple[str, str]]:
    return frozenset(labels.items())
