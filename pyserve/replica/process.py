"""The process around a worker: arguments, event loop, signals, and the end of its launcher."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gc
import logging
import os
import signal
import stat
import sys
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from types import FrameType
from typing import Any

from pyserve.aio.certificates import mesh_tls
from pyserve.api.context import attach
from pyserve.bridge import keep_freed_memory, keep_from_forks, raise_descriptor_limit
from pyserve.config import MeshSettings, older_names, read_settings
from pyserve.config.control import OUTPUT_BOUND_PERIOD_S, OUTPUT_FILE_BYTES_MAX
from pyserve.config.environment import names_debugger
from pyserve.config.tls import PLAIN_TCP_REMEDY
from pyserve.errors import MeshError, OptionError, WrongMoment
from pyserve.observe.metrics import ProcessMetrics
from pyserve.observe.traces.process import PROCESS_TRACING
from pyserve.observe.uncaught import log_by_environment
from pyserve.replica.exits import run_to_end
from pyserve.replica.loading import StopRequested
from pyserve.replica.worker import Worker, WorkerSettings
from pyserve.routing.in_process import InProcessRouter
from pyserve.types import ApplicationName, DeploymentName, MeshAddress, ReplicaId

# From settings, controller and token: the metrics of this process, and the address of their server.
ShowMetrics = Callable[
    [MeshSettings, str, bytes], AbstractContextManager[tuple[ProcessMetrics, str]]
]
ReadToken = Callable[[Path, str], bytes]
_TOKEN_BYTES_MAX = 4096
# Without its launcher a replica has no ingress and soon no caller: what is in flight gets two
# seconds, and an end that hangs (a handler holds the loop) is cut off after five. Arbitrary.
_ORPHAN_GRACE_S = 2.0
_ORPHAN_TIMEOUT_S = 5.0
_STANDARD_OUTPUT = 1


def main(
    read_token: ReadToken,
    show_metrics: ShowMetrics,
    arguments: list[str] | None = None,
) -> int:
    """Run one replica; return the exit status: 0 after a drain, 1 when it could not serve.

    Args:
        read_token: Reads the mesh token from the file that a variable names, if no descriptor has
            it. Like the next one it is passed in, since it is built on top of this layer.
        show_metrics: Serves its metrics, if no other process of its machine does.
        arguments: Of the command line; by default the process's own.
    """
    options = _parse(arguments)
    prepare_process()
    if options.lasting is not None:
        threading.Thread(target=_bound_output, name="output", daemon=True).start()
    with contextlib.ExitStack() as stack:
        try:
            mesh = read_settings()
            _check_controller(options.controller, mesh)
            token = _token(options.token_fd, mesh, read_token)
            metrics, admin = ProcessMetrics("replica"), ""
            if options.own_metrics:
                shown = show_metrics(mesh, options.controller, token)
                metrics, admin = stack.enter_context(shown)
            settings = WorkerSettings(
                controller=options.controller,
                token=token,
                application=ApplicationName(options.application),
                deployment=DeploymentName(options.deployment),
                replica_id=ReplicaId(options.replica_id),
                mesh=mesh,
                tls=mesh_tls(mesh.node.tls),
                metrics=metrics,
                admin=admin,
            )
        except (OptionError, MeshError) as error:
            logging.getLogger(__name__).error("%s", error)
            return 2
        return run_worker(settings, options.liveness_fd)


def prepare_process() -> None:
    """Prepare this process for a replica, before user code is imported."""
    log_by_environment()
    separate_forks()
    explain_breakpoints()
    # Before a listener or user code asks how many there may be.
    raise_descriptor_limit()
    for line in older_names():
        logging.getLogger(__name__).warning("%s", line)


def run_worker(settings: WorkerSettings, liveness_fd: int | None = None) -> int:
    """Run one replica in this process; return the exit status, as ``main`` does."""
    if settings.mesh.concurrency.keeps_freed_memory:
        keep_freed_memory()
    mesh = _open_mesh(settings)
    attach(mesh)
    try:
        with asyncio.Runner(loop_factory=_loop_factory()) as runner:
            return run_to_end(runner, _run(settings, mesh, liveness_fd))
    finally:
        # A plain ``__del__`` of the instance may log, and use threads and executors: while the
        # interpreter ends it could not. Handlers and loop refer to each other, so it waits there.
        gc.unfreeze()
        gc.collect()
        # Its thread must have ended before the interpreter is torn down.
        mesh.close()
        PROCESS_TRACING.stop()


def _open_mesh(settings: WorkerSettings) -> InProcessRouter:
    """Make the access to other deployments, for the handles of user code."""
    controller = MeshAddress(controller=settings.controller, token=settings.token)
    router = InProcessRouter(
        controller, settings.mesh.node, settings.mesh.run_dir, settings.mesh.routing
    )
    settings.metrics.add(router.add_metrics)
    return router


async def _run(settings: WorkerSettings, mesh: InProcessRouter, liveness_fd: int | None) -> int:
    loop = asyncio.get_running_loop()
    keep_from_forks(loop)
    worker = Worker(settings, mesh.enter_zone)
    if liveness_fd is not None:
        watcher = threading.Thread(
            target=_watch_launcher, args=(liveness_fd, loop, worker), name="launcher", daemon=True
        )
        watcher.start()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _StopSignal(loop, worker))
    try:
        return await worker.run()
    finally:
        if worker.is_orphan:
            worker.abandon()


class _StopSignal:
    """SIGTERM or SIGINT: drains the replica; the second one cuts the grace short.

    A plain signal handler also interrupts a constructor that holds the loop, which a handler
    of the loop could not.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, worker: Worker) -> None:
        self._loop = loop
        self._worker = worker
        self._count = 0

    def __call__(self, _number: int, _frame: FrameType | None) -> None:
        self._count += 1
        # If the loop has been closed, the process is about to end anyway.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(
                self._worker.request_stop, None if self._count == 1 else 0.0
            )
        if self._worker.is_constructing:
            raise StopRequested(0)


def _watch_launcher(liveness_fd: int, loop: asyncio.AbstractEventLoop, worker: Worker) -> None:
    """Wait until the launcher's end of the pipe closes, then make sure that this process ends."""
    while os.read(liveness_fd, 1):
        pass
    logging.getLogger(__name__).warning("the launcher is gone; this replica ends")
    worker.is_orphan = True
    loop.call_soon_threadsafe(worker.request_stop, _ORPHAN_GRACE_S)
    ended = threading.Event()  # Never set: this thread ends with the process.
    ended.wait(0 if worker.is_constructing else _ORPHAN_TIMEOUT_S)
    worker.abandon()
    os._exit(1)


def _bound_output() -> None:
    """Empty the output file when it has not been followed for long."""
    ended = threading.Event()  # Never set: this thread ends with the process.
    while not ended.wait(OUTPUT_BOUND_PERIOD_S):
        empty_if_large(_STANDARD_OUTPUT)


def empty_if_large(output: int) -> None:
    """Empty a file that has grown beyond its bound; pipes and terminals are left alone."""
    found = os.fstat(output)
    if stat.S_ISREG(found.st_mode) and found.st_size > OUTPUT_FILE_BYTES_MAX:
        os.ftruncate(output, 0)


def _loop_factory() -> type[asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except ImportError:  # Not available on every platform; asyncio's own loop serves.
        return None
    loop: type[asyncio.AbstractEventLoop] = uvloop.Loop
    return loop


def _check_controller(controller: str, settings: MeshSettings) -> None:
    if not settings.node.may_carry_token(controller):
        raise MeshError(
            f"the controller is at {controller}, to which the mesh token would pass over the "
            f"network in plain text; {PLAIN_TCP_REMEDY}"
        )


def _token(descriptor: int | None, settings: MeshSettings, read_token: ReadToken) -> bytes:
    """Read the mesh token and close the descriptor."""
    if descriptor is None:
        path = settings.token_file
        return b"" if path is None else read_token(path, "PYSERVE_TOKEN_FILE")
    with os.fdopen(descriptor, "rb") as file:
        return file.read(_TOKEN_BYTES_MAX)


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m pyserve.replica", description="One replica; started by a launcher."
    )
    parser.add_argument("--controller", required=True, help="host:port or unix:path")
    parser.add_argument("--application", required=True)
    parser.add_argument("--deployment", required=True)
    parser.add_argument("--replica-id", default="")
    parser.add_argument("--token-fd", type=int, help="descriptor to read the mesh token from")
    parser.add_argument("--liveness-fd", type=int, help="pipe that the launcher holds open")
    parser.add_argument(
        "--own-metrics", action="store_true", help="it is alone on its machine, and shows its own"
    )
    parser.add_argument(
        "--lasting",
        metavar="RUN_DIR",
        help="outlive the launcher of that directory; the output is a file, and kept bounded",
    )
    return parser.parse_args(arguments)


# `breakpoint()` in a replica: raises with advice, instead of `BdbQuit` ending the call.


def explain_breakpoints() -> None:
    """Make ``breakpoint()`` raise with advice if a debugger would lack a terminal.

    Nothing changes for a debugger that has set its own hook, for ``PYTHONBREAKPOINT``, and for a
    replica with a terminal.
    """
    if sys.breakpointhook is sys.__breakpointhook__:
        sys.breakpointhook = _break


def _break(*arguments: Any, **options: Any) -> Any:
    # Read at each call, as Python's own hook does: user code may set it.
    if names_debugger() or (sys.stdin is not None and sys.stdin.isatty()):
        return sys.__breakpointhook__(*arguments, **options)
    raise WrongMoment(
        "breakpoint() needs a terminal, and a replica has none: use `pyserve run module:app "
        "--in-process`, or name a debugger that listens at a port in PYTHONBREAKPOINT"
    )


# Keeps the signals of a replica from processes that user code forks.
#
# A fork inherits the handlers and the wake-up descriptor, which it shares with its parent: the
# parent would take a SIGTERM for the child as its own, and drain. So signals are held back while a
# fork is made, and the child gets Python's own handlers before they are let through.
#
# `pyserve.bridge` shuts the descriptors that a fork inherits.

_SIGNALS = (signal.SIGTERM, signal.SIGINT)


class _Held(threading.local):
    """The signal mask of a forking thread before the fork."""

    mask: frozenset[int] = frozenset()


def separate_forks() -> None:
    """Keep the replica's signals from forks, for the rest of the process's life."""
    held = _Held()

    def before() -> None:
        held.mask = frozenset(signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS))

    def after_in_parent() -> None:
        signal.pthread_sigmask(signal.SIG_SETMASK, held.mask)

    def after_in_child() -> None:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.pthread_sigmask(signal.SIG_SETMASK, held.mask)

    os.register_at_fork(
        before=before, after_in_parent=after_in_parent, after_in_child=after_in_child
    )
