"""Deployments that tell how malloc takes blocks above its own threshold."""

from __future__ import annotations

import ctypes
from typing import Any

import pyserve

# glibc maps them one by one unless it is told otherwise (M_MMAP_THRESHOLD, 128 KiB at first).
_BLOCK_BYTES = 4 << 20
_COUNTS = "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost"


class _Mallinfo(ctypes.Structure):
    _fields_ = [(name, ctypes.c_size_t) for name in _COUNTS.split()]


@pyserve.deployment
def default(_: int) -> int:
    return _mapped_bytes()


@pyserve.deployment(env_vars={"PYSERVE_KEEP_FREED_MEMORY": "0"})
def untouched(_: int) -> int:
    return _mapped_bytes()


@pyserve.deployment
class Both:
    """Asks them both."""

    def __init__(self, first: Any, second: Any) -> None:
        self._handles = (first, second)

    async def ask(self) -> list[int]:
        return [await handle.remote(0) for handle in self._handles]


def _mapped_bytes() -> int:
    """Return how much of a new block malloc has mapped by itself."""
    library = ctypes.CDLL(None)
    library.mallinfo2.restype = _Mallinfo
    library.malloc.restype = ctypes.c_void_p
    library.free.argtypes = [ctypes.c_void_p]
    before = library.mallinfo2().hblkhd
    block = library.malloc(ctypes.c_size_t(_BLOCK_BYTES))
    after = library.mallinfo2().hblkhd
    library.free(block)
    return int(after - before)


app = Both.bind(default.bind(), untouched.bind())
