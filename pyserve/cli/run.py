"""``pyserve run``: a mesh on this machine, in the foreground."""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from pathlib import Path
from queue import Empty, SimpleQueue
from types import FrameType
from typing import TYPE_CHECKING, NoReturn, Self

import click

from pyserve.cli.applications import (
    file_of,
    ingress_options,
    is_file,
    load_request,
    pack_target,
)
from pyserve.cli.commands import print_failure, print_failures
from pyserve.cli.page import page_to_try
from pyserve.cli.proto import generate_missing
from pyserve.cli.settings import (
    access_log_option,
    launcher_options,
    listening_options,
    prefix_option,
    read_prefix,
    server_tls_files,
    settings_for,
)
from pyserve.cli.target import Asked, app_dir_option, as_asked, runtime_env_options
from pyserve.config import check_address, check_name
from pyserve.config.http import RoutePrefix
from pyserve.config.launchers import LauncherConfig
from pyserve.control.state.specs import Run
from pyserve.driver.api import deploy
from pyserve.driver.ingress_options import IngressOptions
from pyserve.driver.progress import all_ready, apply, progress_view, ready
from pyserve.driver.session import Session, end_session, open_session, warn_of_names
from pyserve.errors import DeploymentFailed, MeshUnavailable, PyserveError

if TYPE_CHECKING:
    from pyserve.api.graph import PackedApplication
    from pyserve.config.tls import TlsFiles
    from pyserve.driver.client import ControlClient
    from pyserve.wire.v1 import control_pb2

# How often the foreground looks whether its mesh still lives; `pyserve shutdown` ends it.
_ALIVE_CHECK_S = 0.2
_SHUT_DOWN = "the mesh was shut down by another command, or by a signal, and this run with it"
_NAME = "default"
# Every edit waits for replicas to start, most often for those of two deployments.
_RELOADED = {"PYSERVE_SPARE_REPLICAS": "2"}
_IN_PROCESS_ADDRESSES = ("127.0.0.1:8000",)


@click.command(short_help="Run an application in the foreground.")
@click.argument("target", metavar="MODULE:ATTRIBUTE|FILE.yaml")
@click.argument("arguments", nargs=-1, metavar="[KEY=VALUE]...")
@click.option("--name", help="Name of the application. [default: default]")
@prefix_option
@app_dir_option
@runtime_env_options
@listening_options
@click.option("--controller", metavar="HOST:PORT", help="Join the mesh of that controller.")
@click.option("-r", "--reload", is_flag=True, help="Roll what rests upon source files that change.")
@click.option("--in-process", is_flag=True, help="Run the replicas in this process.")
@launcher_options
@access_log_option
@click.option("--proto", is_flag=True, help="Generate stubs of .proto files that lack them first.")
@click.option("--development", is_flag=True, help="Tell clients the texts of exceptions.")
@as_asked
def run(
    asked: Asked,
    addresses: tuple[str, ...],
    tls_cert: Path | None,
    tls_key: Path | None,
    tls_client_ca: Path | None,
    controller: str | None,
    reload: bool,
    in_process: bool,
    proto: bool,
    development: bool,
    launcher: LauncherConfig | None,
) -> None:
    """Run an application until Ctrl-C.

    MODULE:ATTRIBUTE names an application, a deployment, or a function that returns an
    application. KEY=VALUE are its arguments. FILE.yaml has the applications and what they need,
    as `pyserve deploy` takes it.

    With --reload the source files below the working directory are watched: an edit rolls the
    applications that rest upon it, and what cannot be loaded leaves the version before serving.

    With --in-process there is no mesh: one replica of each deployment runs in this process,
    where breakpoints work, and --address answers gRPC and the plain HTTP of the first one.
    """
    check_name("--name", asked.name or _NAME)
    for address in addresses:
        check_address("--address", address)
    tls = server_tls_files(tls_cert, tls_key, tls_client_ca)
    if proto:
        generate_missing()
    if in_process:
        _check_in_process(asked, controller, launcher, reload=reload)
        _run_in_process(asked, addresses, tls)
        return
    prefix = read_prefix(asked.route_prefix)
    settings = settings_for(controller)
    if development:
        settings = replace(settings, development=True)
    options = IngressOptions(tls=tls, launcher=launcher)
    reloading: Callable[[Session, Run], AbstractContextManager[object]] | None = None
    if reload or is_file(asked.target):
        file = file_of(asked)
        of_file = ingress_options(file, asked.app_dir)
        options = replace(of_file, tls=tls or of_file.tls, launcher=launcher or of_file.launcher)
        if reload:
            from pyserve.cli.reloading import Loader, Reloading

            loader = Loader(asked)
            request, reloading = loader.load(), partial(Reloading, loader)
        else:
            request = load_request(file, asked.app_dir)
        bring_up = partial(_bring_up_file, request)
    else:
        bring_up = partial(_bring_up, pack_target(asked), prefix)
    environment = _RELOADED if reload and not settings.spare_replicas else {}
    _run_in_mesh(
        bring_up,
        lambda run: open_session(addresses or None, settings, options, run, environment),
        reloading,
    )


def _run_in_process(asked: Asked, addresses: Sequence[str], tls: TlsFiles | None) -> None:
    # Half of the time of a start is spent on importing servers and readers: only where needed.
    from pyserve.cli.in_process import run_in_process

    warn_of_names()
    packed = pack_target(asked)
    run_in_process(packed, addresses or _IN_PROCESS_ADDRESSES, tls)


def _bring_up(
    packed: PackedApplication, prefix: str | RoutePrefix | None, session: Session, run: Run
) -> None:
    listening = deploy(session, packed, route_prefix=prefix, timeout_s=None, run=run)
    names = {each.name for each in packed.deployments}
    _show_lines(session, ready(session, {packed.name: names}, listening))
    _show_lines(session, page_to_try(session))


def _bring_up_file(request: control_pb2.ApplyRequest, session: Session, run: Run) -> None:
    """Bring the applications of a file up; those that cannot be are told, the others serve."""
    outcome = apply(session.client, request, run=run, view=progress_view(session.screen))
    print_failures(outcome.failed)
    if outcome.failed and not outcome.deployed:
        sys.exit(1)
    _show_lines(session, all_ready(session, request, outcome))
    _show_lines(session, page_to_try(session))


def _show_lines(session: Session, lines: Iterable[str]) -> None:
    """Show lines that the user waits for, above what is drawn meanwhile."""
    for line in lines:
        # An echo could come between the last drawing of a row and its removal.
        if session.screen is not None and sys.stdout.isatty():
            session.screen.line(line)
        else:
            click.echo(line)


def _run_in_mesh(
    bring_up: Callable[[Session, Run], None],
    open_mesh: Callable[[Run], Session],
    reloading: Callable[[Session, Run], AbstractContextManager[object]] | None,
) -> None:
    present, interrupt = Run(secrets.token_hex(8), os.getpid()), _Interrupt()
    with interrupt, contextlib.ExitStack() as stack:
        stack.callback(end_session)
        try:
            interrupt.session = session = open_mesh(present)
            terminal = stack.enter_context(Terminal(session.client, present))
            stack.callback(_end, session, present, terminal)
            bring_up(session, present)
            if reloading is not None:
                stack.enter_context(reloading(session, present))
            while _goes_on(session, terminal):
                if interrupt.wait(_ALIVE_CHECK_S):
                    return
            _check_end(session, terminal)
            click.echo(f"pyserve: {_SHUT_DOWN}", err=True)
        except _Interrupted:
            return
        except DeploymentFailed as error:
            # At once: what has come up meanwhile may take its time to end.
            print_failure(error)
            sys.exit(1)


def _check_in_process(
    asked: Asked, controller: str | None, launcher: LauncherConfig | None, *, reload: bool
) -> None:
    if is_file(asked.target):
        raise click.UsageError(
            f"--in-process takes one application, MODULE:ATTRIBUTE, and no file such as "
            f"{asked.target}"
        )
    for option, is_given in (
        ("--controller", controller),
        ("--launcher", launcher),
        ("--route-prefix", asked.route_prefix is not None),
        ("--reload", reload),
        ("runtime_env", asked.runtime_env),
    ):
        if is_given:
            raise click.UsageError(
                f"{option} has no meaning with --in-process, which runs no mesh; leave one of them "
                f"out"
            )


class _Interrupted(BaseException):
    """Ctrl-C or SIGTERM came while the application was being deployed."""


class _Interrupt:
    """Ctrl-C and SIGTERM: the first drains, the second ends all that others do not need."""

    def __init__(self) -> None:
        self.session: Session | None = None
        # Not an Event: a signal that comes within its wait() would meet the lock held, for ever.
        self._came: SimpleQueue[None] = SimpleQueue()
        self._has_come = False
        self._ready = False
        self._previous: dict[int, object] = {}

    def wait(self, timeout_s: float) -> bool:
        """Wait for the first signal, which from now on only sets a flag."""
        self._ready = True
        try:
            self._came.get(timeout=timeout_s)
        except Empty:
            return False
        return True

    def __enter__(self) -> None:
        for number in (signal.SIGINT, signal.SIGTERM):
            self._previous[number] = signal.signal(number, self._on_signal)

    def __exit__(self, *_: object) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)  # type: ignore[arg-type]  # what signal() returned

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        if self._has_come:
            self._stop_at_once(number)
        self._has_come = True
        self._came.put(None)
        _tell("\npyserve: draining; a second Ctrl-C stops at once")
        if not self._ready:
            raise _Interrupted

    def _stop_at_once(self, number: int) -> NoReturn:
        # A mesh that only lost its starter would still drain.
        process = None if self.session is None else self.session.process
        if process is not None and process.hurry():
            _tell("pyserve: the mesh goes on for others")
        os._exit(128 + number)


def _tell(line: str) -> None:
    # Not by the stream, which the signal may have interrupted. The reader may be gone; the drain
    # goes on all the same.
    with contextlib.suppress(OSError):
        os.write(sys.stderr.fileno(), f"{line}\n".encode())


def _goes_on(session: Session, terminal: Terminal) -> bool:
    return session.is_running() and (session.process is not None or not terminal.has_ended())


def _check_end(session: Session, terminal: Terminal) -> None:
    """Raise if the mesh has ended in another way than by a drain."""
    status = session.process.poll() if session.process is not None else None
    if status and status < 0:
        raise MeshUnavailable(
            f"the mesh ended unexpectedly, by signal {-status} ({signal.strsignal(-status)}); if "
            f"nobody sent it, the system's log tells whom the kernel kills for want of memory"
        )
    if status:
        raise MeshUnavailable(
            f"the mesh ended unexpectedly, with status {status}; its output above says why"
        )
    if session.process is None and terminal.has_ended(unexpectedly=True):
        raise MeshUnavailable(
            "the mesh of this application has ended unexpectedly, or cannot be reached any more"
        )


def _end(session: Session, present: Run, terminal: Terminal) -> None:
    """End what this run deployed last, and its mesh unless another run needs it."""
    if not _goes_on(session, terminal):
        return
    was_owner = session.process is not None
    others = session.leave(present)
    if others and was_owner:
        pids = ", ".join(map(str, others))
        click.echo(f"pyserve: the mesh goes on for pyserve run (pid {pids})", err=True)


# The lines that the mesh has for the terminal of a `pyserve run`.

# A thread that prints a line notices its end at once.
_JOIN_TIMEOUT_S = 2.0


class Terminal:
    """Prints what befalls the run's application while it is entered, in a thread.

    Args:
        client: Speaks with the controller.
        run: Whose terminal it is. The mesh knows it as long as this is entered.

    Raises:
        MeshError: The controller does not answer.
    """

    def __init__(self, client: ControlClient, run: Run) -> None:
        self._client = client
        self._run = run
        self._lines = client.follow(run)
        self._closed = threading.Event()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._print, name="pyserve-lines", daemon=True)

    def has_ended(self, *, unexpectedly: bool = False) -> bool:
        """Say whether the mesh has ended; ``unexpectedly``: without having said so."""
        return self._ended.is_set() and not (unexpectedly and self._lines.has_ended_in_order)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closed.set()
        self._lines.close()
        self._thread.join(_JOIN_TIMEOUT_S)

    def _print(self) -> None:
        while not self._closed.is_set():
            for line in self._lines:
                sys.stderr.write(f"pyserve: {line}\n")
                sys.stderr.flush()
            if self._closed.is_set() or self._lines.has_ended_in_order:
                break
            if not self._follow_again():
                break
        if not self._closed.is_set():
            self._ended.set()

    def _follow_again(self) -> bool:
        """Follow the mesh once more: the connection may have broken, or the controller died."""
        # The first attempt may meet the sockets of one that is about to die.
        for _ in range(2):
            with contextlib.suppress(PyserveError):
                self._lines = self._client.follow(self._run)
                return True
        return False
