"""Starts the servers that are measured, each on the CPUs that it may use."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from benchmarks.machine import ROOT

_START_TIMEOUT_S = 120.0
_STOP_TIMEOUT_S = 60.0

# What may stand on either side of a comparison, by name: a module that prints one line of JSON
# with its address and process id, and serves until its standard input ends: services/echo, but for
# those of the doors.
CONTESTANTS: Mapping[str, tuple[str, ...]] = {
    "pyserve": ("benchmarks.pyserve_mesh",),
    "pyserve.aio": ("benchmarks.aio_server", "--library", "pyserve.aio"),
    "grpc.aio": ("benchmarks.aio_server", "--library", "grpc.aio"),
    "batched mesh": ("benchmarks.batched_server", "mesh"),
    "batched grpc.aio": ("benchmarks.batched_server", "plain"),
    "uvicorn": ("benchmarks.doors.uvicorn_server",),
    "granian": ("benchmarks.doors.granian_server",),
    "mesh bare": ("benchmarks.doors.mesh", "bare"),
    "mesh plain": ("benchmarks.doors.mesh", "plain"),
    "mesh fastapi": ("benchmarks.doors.mesh", "fastapi"),
    "mesh echo": ("benchmarks.doors.mesh", "echo"),
    "mesh echo tls": ("benchmarks.doors.mesh", "echo", "--tls"),
}


class ServerError(Exception):
    """A server did not start or did not stop; the text says which."""


@dataclass(frozen=True)
class CpuSets:
    """Who runs where.

    Attributes:
        server: CPUs of the whole tree of a server.
        generator: CPUs of the load generator and of the measuring.
    """

    server: frozenset[int]
    generator: frozenset[int]

    @classmethod
    def of(cls, available: Sequence[int]) -> CpuSets:
        """Give the server the first CPU and the generator the second, if there are two."""
        ordered = sorted(available)
        return cls(frozenset(ordered[:1]), frozenset(ordered[1:2] or ordered[:1]))

    @classmethod
    def here(cls, *, is_pinned: bool = True) -> CpuSets:
        """Share out the CPUs that this process may use; unpinned: everybody gets all of them."""
        available = sorted(os.sched_getaffinity(0))
        return cls.of(available) if is_pinned else cls.shared(available)

    @classmethod
    def shared(cls, available: Sequence[int]) -> CpuSets:
        """Let everybody run everywhere, as on a machine where nothing is pinned."""
        return cls(frozenset(available), frozenset(available))

    @property
    def separate(self) -> bool:
        """Whether generator and server never compete for a CPU."""
        return not self.server & self.generator


@dataclass(frozen=True)
class RunningServer:
    """A server that answers.

    Attributes:
        name: Of the contestant.
        address: ``host:port``.
        pids: Roots of its trees of processes.
        arguments: What the generator needs to know besides.
        admin: ``host:port`` of its metrics; "": it shows none.
    """

    name: str
    address: str
    pids: tuple[int, ...]
    arguments: tuple[str, ...] = ()
    admin: str = ""


@contextmanager
def affinity(cpus: frozenset[int]) -> Iterator[None]:
    """Run this thread, and what it starts meanwhile, on ``cpus`` only."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cpus)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


@contextmanager
def running_server(
    name: str,
    cpus: frozenset[int],
    *,
    tree: Path = ROOT,
    variables: Mapping[str, str] = MappingProxyType({}),
) -> Iterator[RunningServer]:
    """Start a contestant in a mesh home of its own; it ends with the block, or with us.

    Args:
        name: Of ``CONTESTANTS``.
        cpus: That it may use.
        tree: Whose code it runs; another one has its own ``.venv``.
        variables: Of its environment, besides.

    Raises:
        ServerError: It did not start, or did not end.
    """
    with tempfile.TemporaryDirectory(prefix="pyserve-bench-") as home:
        # A mesh that runs on this machine already is none of our business.
        environment = {k: v for k, v in os.environ.items() if not k.startswith("PYSERVE_")}
        environment.update(variables, PYSERVE_HOME=home)
        python = sys.executable if tree == ROOT else str(tree / ".venv" / "bin" / "python")
        with affinity(cpus):
            process = subprocess.Popen(
                [python, "-m", *CONTESTANTS[name]],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                cwd=tree,
                env=environment,
            )
        try:
            yield _read_report(name, process)
        finally:
            _stop(name, process)


def _read_report(name: str, process: subprocess.Popen[bytes]) -> RunningServer:
    assert process.stdout is not None
    deadline = time.monotonic() + _START_TIMEOUT_S
    text = b""
    while not text.endswith(b"\n"):
        left_s = deadline - time.monotonic()
        if left_s <= 0 or not select.select([process.stdout], [], [], left_s)[0]:
            raise ServerError(f"{name} did not start within {_START_TIMEOUT_S:g} s")
        chunk = os.read(process.stdout.fileno(), 65536)
        if not chunk:
            raise ServerError(f"{name} ended while it started; its output above says why")
        text += chunk
    report = json.loads(text)
    arguments = tuple(map(str, report.get("arguments", ())))
    pids = tuple(report["pids"]) if "pids" in report else (int(report["pid"]),)
    address, admin = str(report["address"]), str(report.get("admin", ""))
    return RunningServer(name, address, pids, arguments, admin)


def _stop(name: str, process: subprocess.Popen[bytes]) -> None:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.close()
    try:
        process.wait(timeout=_STOP_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        raise ServerError(f"{name} did not end within {_STOP_TIMEOUT_S:g} s") from None
    finally:
        process.stdout.close()
