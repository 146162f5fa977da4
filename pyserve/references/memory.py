"""Memory of held values: sealed memfds, which other processes map without a copy.

A value is written once, then sealed: nobody can change, shrink or grow it any more, so whoever
maps it needs to trust its content only as far as that of any message. Where there are no memfds
(or too few descriptors left) a value is kept as bytes.
"""

from __future__ import annotations

import fcntl
import mmap
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyserve.serializers import Buffer, Parts

IS_SUPPORTED = hasattr(os, "memfd_create") and hasattr(fcntl, "F_ADD_SEALS")
"""Whether this platform has memfds with seals: Linux."""

# It forbids later writes (Linux 5.1). F_SEAL_WRITE does the same for a file that is not mapped for
# writing, but first waits until no page is in use anywhere, and fails with EBUSY on a busy machine.
_SEAL_FUTURE_WRITE = 0x10
_SEALS = _SEAL_FUTURE_WRITE | (
    fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL if IS_SUPPORTED else 0
)

_NAME = "pyserve-value"  # shown in /proc/<pid>/fd
_PARTS_MAX = 1024  # IOV_MAX of Linux


class Segment:
    """A value in a sealed memfd of this process.

    Attributes:
        fd: The descriptor, closed by ``close``.
        size_bytes: Of the value, at least 1.
    """

    __slots__ = ("fd", "size_bytes")

    def __init__(self, parts: Parts) -> None:
        """Write and seal a value.

        Raises:
            OSError: There is no memory or no descriptor left.
        """
        self.fd = os.memfd_create(_NAME, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        try:
            self.size_bytes = _write(self.fd, parts)
            fcntl.fcntl(self.fd, fcntl.F_ADD_SEALS, _SEALS)
        except BaseException:
            os.close(self.fd)
            raise

    def map(self) -> mmap.mmap:
        """Map the value, read-only."""
        return map_value(self.fd, self.size_bytes)

    def close(self) -> None:
        """Close the descriptor; mappings stay. To be called once."""
        os.close(self.fd)


def map_value(fd: int, size_bytes: int) -> mmap.mmap:
    """Map a value that another process has sealed, read-only. ``fd`` may be closed afterwards.

    Raises:
        ValueError: It is not sealed (its owner could cut it off under our feet), or too short.
    """
    seals = fcntl.fcntl(fd, fcntl.F_GET_SEALS)
    if seals & _SEALS != _SEALS:
        raise ValueError(f"a value came in memory that is not sealed (seals {seals:#x})")
    found = os.fstat(fd).st_size
    if found != size_bytes:
        raise ValueError(f"a value of {size_bytes} bytes came in memory of {found}")
    return mmap.mmap(fd, size_bytes, flags=mmap.MAP_SHARED, prot=mmap.PROT_READ)


def _write(fd: int, parts: Parts) -> int:
    """Write parts one after the other; ``write`` needs no mapping, hence no page faults."""
    views: list[Buffer] = [view for view in map(_flat, parts) if view.nbytes]
    total = 0
    while views:
        written = os.writev(fd, views[:_PARTS_MAX])
        total += written
        views = _rest(views, written)
    return total


def _rest(views: Sequence[Buffer], written: int) -> list[Buffer]:
    for index, view in enumerate(views):
        if written < len(view):
            return [memoryview(view)[written:], *views[index + 1 :]]
        written -= len(view)
    return []


def _flat(part: Buffer) -> memoryview:
    view = memoryview(part)
    return view if view.ndim == 1 and view.itemsize == 1 else view.cast("B")
