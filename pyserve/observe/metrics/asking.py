"""Scrapes the processes of one node: all at the same time, and with a short timeout."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pyserve.observe.metrics.answering import PATTERN
from pyserve.observe.metrics.families import Family

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
