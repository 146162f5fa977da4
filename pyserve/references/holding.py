"""The values that this process holds: the books of ``store.py``, and the memory they are about.

Memory is sealed memfds, which other processes map without a copy. A value is written once, then
sealed: nobody can change, shrink or grow it any more, so whoever maps it needs to trust its content
only as far as that of any message. Where there are no memfds (or too few descriptors left) a value
is kept as bytes.
"""

from __future__ import annotations

import concurrent.futures
import errno
import fcntl
import logging
import mmap
import os
import resource
import secrets
import threading
import time
import weakref
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyserve.errors import BackPressure
from pyserve.references.store import Limits, Store

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyserve.references.process import PrivateLoop
    from pyserve.serializers import Buffer, Parts


# The holder number of this process itself; connections count from 1.
OWN = 0

_MIB = 2**20
_LOGGER = logging.getLogger(__name__)
_NO_MEMORY = (errno.ENOMEM, errno.ENOSPC)


@dataclass(frozen=True, slots=True)
class Lent:
    """A descriptor to send to another process.

    Attributes:
        fd: Of a sealed memfd.
        size_bytes: Of the value in it.
        is_temporary: It was made for this one process; close it once it is sent.
    """

    fd: int
    size_bytes: int
    is_temporary: bool


class Holding:
    """Holds values; every method may be called from any thread, ``forget`` by finalizers too.

    Args:
        loop: Where expiry is timed and finalizers are heard.
        limits: Bounds.
    """

    def __init__(self, loop: PrivateLoop, limits: Limits) -> None:
        self._loop = loop
        self._store = Store(limits)
        self._memory: dict[str, Segment | bytes] = {}
        self._segments = 0
        # Half of the descriptors that the process may have: the rest is for everything else.
        self._segments_max = resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 2
        self._lock = threading.Lock()
        self._is_timed = False
        self._drained: list[concurrent.futures.Future[None]] = []

    @property
    def held_bytes(self) -> int:
        """Sum of the values' sizes."""
        return self._store.held_bytes

    @property
    def held_count(self) -> int:
        """How many values are held."""
        return len(self._store)

    def hold(self, parts: Parts) -> tuple[str, int]:
        """Copy a value into memory that can be shared; return its key and size.

        Raises:
            BackPressure: There is no room for it.
        """
        key = secrets.token_hex(16)
        size_bytes = sum(memoryview(part).nbytes for part in parts)
        with self._lock:
            has_room = self._store.add(key, size_bytes, time.monotonic())
            count, held = len(self._store), self._store.held_bytes
        if not has_room:
            raise BackPressure(
                f"no room to hold {size_bytes / _MIB:.1f} MiB: {count} values have "
                f"{held / _MIB:.1f} of {self._store.limits.held_bytes_max / _MIB:.0f} MiB; fetch "
                "or drop earlier responses first, or call with _by_reference=False"
            )
        try:
            memory = self._written(parts, size_bytes)
        except OSError as error:
            self._locked(self._store.forget, key)
            raise BackPressure(f"no memory to hold {size_bytes} bytes: {error}") from error
        with self._lock:
            if key in self._store:
                self._memory[key] = memory
                memory = b""
        self._let_go(memory)  # It was cleared or has aged meanwhile.
        self._time_expiry()
        return key, size_bytes

    def view(self, key: str) -> Buffer | None:
        """Return the bytes of an own value, ``None`` when it is freed or closed."""
        with self._lock:
            memory = self._memory.get(key)
            if memory is None or not self._store.take(key, OWN, time.monotonic()):
                return None
        if isinstance(memory, bytes):
            self.drop(key, OWN)
            return memory
        try:
            mapping = memory.map()
        except BaseException:  # No descriptor left, or no memory.
            self.drop(key, OWN)
            raise
        on_garbage(mapping, self._loop, self.drop, key, OWN)
        return memoryview(mapping)

    def lend(self, key: str, holder: int) -> Lent | None:
        """Take a value for ``holder``; ``None`` when it is freed or closed.

        Raises:
            OSError: It is kept as bytes, and no memfd can be made of them.
        """
        with self._lock:
            memory = self._memory.get(key)
            if memory is None or not self._store.take(key, holder, time.monotonic()):
                return None
        if isinstance(memory, Segment):
            return Lent(memory.fd, memory.size_bytes, is_temporary=False)
        try:
            made = Segment([memory])
        except OSError:
            self.drop(key, holder)
            raise
        return Lent(made.fd, made.size_bytes, is_temporary=True)

    def drop(self, key: str, holder: int) -> None:
        """Take back one ``lend`` or ``view``. Not for finalizers."""
        self._locked(self._store.drop, key, holder, time.monotonic())

    def disconnect(self, holder: int) -> None:
        """Take back everything that ``holder`` has."""
        self._locked(self._store.disconnect, holder, time.monotonic())

    def forget(self, key: str) -> None:
        """Free a value once nobody has it any more. Not for finalizers."""
        self._locked(self._store.forget, key)

    def clear(self) -> None:
        """Free everything."""
        self._locked(self._store.clear)

    def drained(self) -> concurrent.futures.Future[None]:
        """Return a future that is done as soon as nothing is held."""
        future: concurrent.futures.Future[None] = concurrent.futures.Future()
        with self._lock:
            if len(self._store):
                self._drained.append(future)
                return future
        future.set_result(None)
        return future

    def close_after_fork(self) -> None:
        """Close the descriptors in a child that user code has forked; the values stay ours."""
        for memory in self._memory.values():
            if isinstance(memory, Segment):
                memory.close()
        self._memory.clear()

    def _written(self, parts: Parts, size_bytes: int) -> Segment | bytes:
        if not IS_SUPPORTED or not size_bytes or self._segments >= self._segments_max:
            return b"".join(parts)
        try:
            segment = Segment(parts)
        except OSError as error:
            if error.errno in _NO_MEMORY:
                raise
            _LOGGER.warning("a value is kept as bytes, which costs a copy: %s", error)
            return b"".join(parts)
        with self._lock:
            self._segments += 1
        return segment

    def _let_go(self, memory: Segment | bytes) -> None:
        if isinstance(memory, Segment):
            with self._lock:
                self._segments -= 1
            memory.close()

    def _locked(self, change: Callable[..., list[str]], *args: object) -> None:
        with self._lock:
            memories = [self._memory.pop(key, b"") for key in change(*args)]
            done: list[concurrent.futures.Future[None]] = []
            if not len(self._store):
                done, self._drained = self._drained, []
        for memory in memories:
            self._let_go(memory)
        for future in done:
            if future.set_running_or_notify_cancel():
                future.set_result(None)
        # A value that was taken and that nobody has any more starts to age now.
        self._time_expiry()

    def _time_expiry(self) -> None:
        """Ensure that a timer runs while some value ages."""
        with self._lock:
            if self._is_timed or self._store.next_expiry() is None:
                return
            self._is_timed = True
        self._loop.call(self._on_time)

    def _on_time(self) -> None:
        """Free the values that are due, and return for the next one. Runs on the loop."""
        import asyncio

        now = time.monotonic()
        self._locked(self._store.expire, now)
        with self._lock:
            due = self._store.next_expiry()
            self._is_timed = due is not None
        if due is not None:
            asyncio.get_running_loop().call_later(max(0.0, due - now), self._on_time)


def on_garbage(
    thing: object, loop: PrivateLoop, function: Callable[..., object], *args: object
) -> None:
    """Call ``function`` on the loop once nobody uses ``thing`` any more."""
    # At the end of the process the connection closes, which says it for all.
    weakref.finalize(thing, loop.call, function, *args).atexit = False


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
