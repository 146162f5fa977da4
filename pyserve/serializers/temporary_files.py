"""Pickles of temporary files: they travel with their content.

An uploaded file is in memory up to a size, and pickle can carry it. A longer one lies in a file of
the operating system, which pickle refuses, so the same call would fail for a larger upload. Nobody
else has a file without a name, so a copy of its content can stand for it; a file with a name stays
where it is, and is refused.
"""

from __future__ import annotations

import io
import os
import pickle
import stat
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyserve.code_pickler import CodePickler

# What ``pread`` reads at once is at most 2 GiB.
_READ_BYTES_MAX = 1 << 30
_NAMED = tempfile._TemporaryFileWrapper  # noqa: SLF001  # what NamedTemporaryFile returns


class ValuePickler(CodePickler):
    """Pickles values of calls: as ``CodePickler`` does, and temporary files in binary mode."""

    def reducer_override(self, value: Any) -> Any:
        if type(value) is io.BufferedRandom and _is_nameless(value):
            return _nameless, (_content(value), value.tell())
        if type(value) is _NAMED and type(value.file) is io.BufferedRandom:
            # Some readers tell the kind of a file by the end of its name.
            suffix = Path(value.name).suffix
            return _named, (_content(value.file), value.tell(), suffix)
        return super().reducer_override(value)


def dumps(value: object, protocol: int, take: Callable[[pickle.PickleBuffer], object]) -> bytes:
    """Return the pickle of a value, without its buffers, which ``take`` gets.

    Raises:
        Exception: Some part of it cannot be pickled.
    """
    buffer = io.BytesIO()
    ValuePickler(buffer, protocol, take).dump(value)
    return buffer.getvalue()


def _is_nameless(file: io.BufferedRandom) -> bool:
    if not isinstance(file.name, int):
        return False
    status = os.fstat(file.fileno())
    return stat.S_ISREG(status.st_mode) and status.st_nlink == 0


def _content(file: io.BufferedRandom) -> pickle.PickleBuffer:
    """Return all bytes of a file, whose position stays as it is."""
    file.flush()
    pieces: list[bytes] = []
    offset = 0
    while piece := os.pread(file.fileno(), _READ_BYTES_MAX, offset):
        pieces.append(piece)
        offset += len(piece)
    return pickle.PickleBuffer(b"".join(pieces))


def _nameless(content: bytes, position: int) -> Any:
    return _filled(tempfile.TemporaryFile(), content, position)


def _named(content: bytes, position: int, suffix: str) -> Any:
    return _filled(tempfile.NamedTemporaryFile(suffix=suffix), content, position)


def _filled(file: Any, content: bytes, position: int) -> Any:
    try:
        file.write(content)
        file.seek(position)
    except BaseException:
        file.close()
        raise
    return file
