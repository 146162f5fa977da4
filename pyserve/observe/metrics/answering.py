"""Where a process of a mesh answers scrapes: a Unix socket of its own, and a thread at it.

The thread costs nothing between scrapes, and answers even while the loops of the process are
blocked. Each connection gets everything as one JSON document. The socket is in a folder that only
the mesh's user may enter.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import gc
import hashlib
import json
import logging
import os
import resource
import secrets
import socket
import struct
import sys
import threading
import weakref
from collections.abc import Callable, Mapping
from pathlib import Path

from pyserve.observe.log_rate_limit import LogRateLimit
from pyserve.observe.metrics.families import Family, Scrape, Source
from pyserve.version import version

_LOGGER = logging.getLogger(__name__)
PATTERN = "metrics-*.sock"
# A scraper waits for a second; one that stops reading is given up.
_SEND_TIMEOUT_S = 1.0
# A cleaner of folders may remove the socket, and nothing announces that. To look twice a minute
# costs nothing, and at most a scrape or two is missed.
_LOOK_PERIOD_S = 30.0
# How long a source that runs in a loop may take, so that the others are still in time.
LOOP_TIMEOUT_S = 0.7
_BACKLOG = 4
# The scraper that could not be accepted has given up by then.
_AGAIN_S = 1.0


def mark_of(token: bytes) -> str:
    """Return a mark that distinguishes the meshes of one user and does not reveal the token."""
    return hashlib.sha256(b"pyserve metrics " + token).hexdigest()[:16]


class ProcessMetrics:
    """The sources of one process.

    Args:
        role: ``ingress``, ``controller``, ``replica`` or ``driver``.
        labels: Of all that the process itself has counted, such as its replica.
    """

    def __init__(self, role: str, labels: Mapping[str, str] | None = None) -> None:
        self.role = role
        self.labels = dict(labels or {})
        self._sources: list[Source] = []
        self._lines = LogRateLimit()

    def add(self, source: Source) -> Callable[[], None]:
        """Ask ``source`` at each scrape, in any thread; return what ends that."""
        self._sources.append(source)

        def remove() -> None:
            with contextlib.suppress(ValueError):
                self._sources.remove(source)

        return remove

    def collect(self) -> list[Family]:
        """Return the present values of all sources; one that fails costs only its own lines."""
        scrape = Scrape(self.labels)
        failed = 0
        for source in (self._add_process, *self._sources):
            try:
                source(scrape)
            except Exception as error:
                failed += 1
                if self._lines.allows():
                    _LOGGER.warning("metrics of this process are incomplete", exc_info=error)
        scrape.add("pyserve_scrape_sources_failed", failed, role=self.role, pid=str(os.getpid()))
        return scrape.families()

    def _add_process(self, scrape: Scrape) -> None:
        add_process(scrape, self.role)


def on_loop(loop: asyncio.AbstractEventLoop, source: Source) -> Source:
    """Return a source that runs in ``loop``, whose thread alone may look at what it reads."""

    def asked(scrape: Scrape) -> None:
        answer: concurrent.futures.Future[None] = concurrent.futures.Future()

        def run() -> None:
            if answer.set_running_or_notify_cancel():
                try:
                    source(scrape)
                except Exception as error:
                    answer.set_exception(error)
                else:
                    answer.set_result(None)

        try:
            running = asyncio.get_running_loop()
        except RuntimeError:
            running = None
        if running is loop:
            source(scrape)
            return
        loop.call_soon_threadsafe(run)
        try:
            answer.result(LOOP_TIMEOUT_S)
        except TimeoutError:
            answer.cancel()
            raise

    return asked


class ScrapePoint:
    """Answers scrapes from its construction until ``close``; replaces its socket if it is removed.

    Args:
        metrics: What it reports.
        folder: Where its socket goes.
        token: Of the mesh.
        look_period_s: How often it looks whether the socket is there.

    Raises:
        OSError: There can be no socket.
    """

    def __init__(
        self,
        metrics: ProcessMetrics,
        folder: Path,
        token: bytes,
        look_period_s: float = _LOOK_PERIOD_S,
    ) -> None:
        self.path = folder / f"metrics-{secrets.token_hex(8)}.sock"
        self._metrics = metrics
        self._mark = mark_of(token)
        self._pid = os.getpid()
        self._look_period_s = look_period_s
        self._listener = self._listen()
        # Of the listener, which the thread may exchange while another one closes it.
        self._turn = threading.Lock()
        self._closed = threading.Event()
        # A child that user code forks must not keep our socket. The reference is weak, since a
        # registration lasts for the life of the interpreter.
        leave = weakref.WeakMethod(self._leave_to_parent)
        os.register_at_fork(after_in_child=lambda: (method := leave()) and method())
        self._thread = threading.Thread(
            target=self._answer_all, name="pyserve-metrics", daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        """Answer no more, and remove the socket. Idempotent."""
        if os.getpid() != self._pid:
            return
        with self._turn:
            self._closed.set()
            self.path.unlink(missing_ok=True)
            with contextlib.suppress(OSError):  # It has been closed.
                # Unlike close, it wakes the thread.
                self._listener.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._listener.close()

    def _listen(self) -> socket.socket:
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            listener.bind(str(self.path))
            # Before it listens. The folder keeps others out as well.
            self.path.chmod(0o600)
            listener.listen(_BACKLOG)
        except OSError:
            listener.close()
            raise
        # In the kernel, since accept with a timeout of Python's does not end at a shutdown.
        whole_s, part_s = divmod(self._look_period_s, 1.0)
        period = struct.pack("@ll", int(whole_s), int(part_s * 1e6))
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, period)
        return listener

    def _look(self) -> None:
        """Make the socket again if it is gone from its path."""
        with self._turn, contextlib.suppress(OSError):  # The folder is not there again yet.
            if not self._closed.is_set() and not self.path.exists():
                former, self._listener = self._listener, self._listen()
                former.close()

    def _answer_all(self) -> None:
        while True:
            try:
                asking, _ = self._listener.accept()
            except BlockingIOError:
                self._look()
                continue
            except OSError:
                # Closed; or no descriptor is left, which may be so for a moment.
                if self._closed.wait(_AGAIN_S):
                    return
                continue
            with asking, contextlib.suppress(OSError):  # It has gone, or reads no more.
                asking.settimeout(_SEND_TIMEOUT_S)
                asking.sendall(self._text())

    def _text(self) -> bytes:
        families = [each.to_plain() for each in self._metrics.collect()]
        return json.dumps({"mesh": self._mark, "families": families}).encode()

    def _leave_to_parent(self) -> None:
        self._listener.close()


# A process's use of the machine, as the kernel counts it.

_PROC = Path("/proc/self")
_PROC_STAT_START = 21  # starttime, field 22 of proc(5), counted from 0
_RESIDENT_FIELD = 1  # of statm


def add_process(scrape: Scrape, role: str) -> None:
    """Add time, memory, descriptors and threads of this process."""
    pid = str(os.getpid())
    used = resource.getrusage(resource.RUSAGE_SELF)
    scrape.add("pyserve_info", 1, role=role, pid=pid, version=version())
    scrape.add(
        "pyserve_process_cpu_seconds_total", used.ru_utime + used.ru_stime, role=role, pid=pid
    )
    scrape.add("pyserve_process_threads", _threads(), role=role, pid=pid)
    for number, each in enumerate(gc.get_stats()):
        labels = {"role": role, "pid": pid, "generation": str(number)}
        scrape.add("pyserve_process_gc_collections_total", each["collections"], **labels)
    scrape.add("pyserve_process_resident_memory_bytes", _resident_bytes(used), role=role, pid=pid)
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY:
        scrape.add("pyserve_process_max_fds", soft, role=role, pid=pid)
    if sys.platform == "linux":
        scrape.add("pyserve_process_open_fds", _count(_PROC / "fd"), role=role, pid=pid)
        scrape.add("pyserve_process_start_time_seconds", _started_at(), role=role, pid=pid)


def _resident_bytes(used: resource.struct_rusage) -> int:
    if sys.platform == "linux":
        pages = int((_PROC / "statm").read_text().split()[_RESIDENT_FIELD])
        return pages * resource.getpagesize()
    # Elsewhere only the maximum so far is available: in bytes on macOS.
    return used.ru_maxrss


def _threads() -> int:
    """Count the threads; on Linux including those of the native side."""
    if sys.platform == "linux":
        return _count(_PROC / "task")
    return threading.active_count()


def _count(folder: Path) -> int:
    return sum(1 for _ in folder.iterdir())


def _started_at() -> float:
    """Return when the process was started, Unix time in seconds."""
    # The name in field 2 may have blanks and parentheses.
    fields = (_PROC / "stat").read_text().rpartition(")")[2].split()
    ticks = int(fields[_PROC_STAT_START - 2])
    boot = next(
        line for line in Path("/proc/stat").read_text().splitlines() if line.startswith("btime")
    )
    return int(boot.split()[1]) + ticks / os.sysconf("SC_CLK_TCK")
