"""Gathers and merges the metrics of one node's processes.

Processes of one user and node share a home directory, in which each mesh and each ingress has a run
folder. If several processes have an admin server, one of the servers asks all processes, and the
others only their own: so nothing is scraped twice.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import json
import os
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pyserve.observe.metrics import Family, ProcessMetrics, Sample, Scrape
from pyserve.observe.metrics.answering import PATTERN, mark_of

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


# What one process may say; thousands of series of user code are a few megabytes.
_TEXT_BYTES_MAX = 32 << 20
# Beyond these the node has more processes than anybody wants to scrape through one port.
_PROCESSES_MAX = 4096
# A socket at which nobody listens, and which is older, was left by a process that was killed.
_LEFT_AFTER_S = 60.0


@dataclass(slots=True)
class Gathered:
    """The answers of the processes of a node.

    Attributes:
        families: By process.
        answered: Processes that did.
        silent: Those that did not answer in time, or whose answer cannot be read.
    """

    families: list[list[Family]] = field(default_factory=list)
    answered: int = 0
    silent: int = 0


async def gather(folders: Iterable[Path], mark: str, timeout_s: float) -> Gathered:
    """Ask every process whose socket lies in one of the folders.

    Args:
        folders: Run folders; one that is gone has nobody in it.
        mark: Of the mesh, whose processes alone count.
        timeout_s: For all of them together.
    """
    paths = [path for folder in folders for path in sorted(folder.glob(PATTERN))]
    found = Gathered()
    texts = await asyncio.gather(
        *(_ask(path, timeout_s) for path in paths[:_PROCESSES_MAX]), return_exceptions=True
    )
    for path, text in zip(paths, texts, strict=False):
        if isinstance(text, ConnectionRefusedError | FileNotFoundError):
            _remove_left(path)
        elif isinstance(text, BaseException):
            found.silent += 1
        else:
            _take(found, text, mark)
    return found


async def _ask(path: Path, timeout_s: float) -> bytes:
    async with asyncio.timeout(timeout_s):
        reader, writer = await asyncio.open_unix_connection(str(path), limit=_TEXT_BYTES_MAX)
        try:
            text = bytearray()
            while chunk := await reader.read(1 << 16):
                text += chunk
                if len(text) > _TEXT_BYTES_MAX:
                    raise ValueError(f"{path} says more than {_TEXT_BYTES_MAX} bytes")
            return bytes(text)
        finally:
            writer.close()


def _take(found: Gathered, text: bytes, mark: str) -> None:
    try:
        said = json.loads(text)
        families: Sequence[object] = said["families"]
        read = [Family.from_plain(each) for each in families]  # type: ignore[arg-type]  # checked
    except (ValueError, KeyError, TypeError):
        found.silent += 1
        return
    if said.get("mesh") == mark:
        found.answered += 1
        found.families.append(read)


def _remove_left(path: Path) -> None:
    with contextlib.suppress(OSError):  # Gone, or somebody else was faster.
        if time.time() - path.stat().st_mtime > _LEFT_AFTER_S:
            path.unlink()
