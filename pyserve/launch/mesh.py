"""Starts a mesh as a child of this process, for drivers and the command line.

The child is ``python -m pyserve.driver.own``: it has the ingress, and starts the controller, again
if that dies. Both hold one end of a socket whose other end lives here: when this process ends,
however it ends, the socket closes and the mesh drains and ends. A byte over it says that this
process is about to end without waiting; the controller answers whether the mesh stays for others.
The child reports the result of its start over a pipe, as one line of JSON.

A controller that is started in this way, or any other, takes its home directory here and reports to
its starter.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
import weakref
from collections.abc import Mapping, Sequence

from pyserve.config import MeshSettings, ProxyLocation, inherited_environment, read_settings
from pyserve.config.control import CONTROLLER_START_TIMEOUT_S, MESH_STAYS
from pyserve.config.launchers import PROCESS, LauncherConfig
from pyserve.control.discovery import MeshHome, MeshRecord
from pyserve.control.home import Lease, read_token
from pyserve.errors import MeshError, MeshHeld
from pyserve.launch.strays import has_members
from pyserve.types import MeshAddress

_REPORT_BYTES_MAX = 1024 * 1024
# The controller's loop answers in milliseconds; five seconds cover a busy machine.
_HURRY_TIMEOUT_S = 5.0


class MeshProcess:
    """A mesh that this process owns: it ends with ``close``, or with this process.

    Attributes:
        record: where the controller and the ingress listen.
    """

    def __init__(self, process: subprocess.Popen[bytes], record: MeshRecord, liveness: int) -> None:
        self._process = process
        self._liveness = liveness
        self.record = record
        # A fork of the driver must not keep the mesh alive after it. Weakly, since the
        # registration stays for the life of the interpreter.
        let_go = weakref.WeakMethod(self.let_go)
        os.register_at_fork(after_in_child=lambda: (method := let_go()) and method())

    @classmethod
    def start(
        cls,
        addresses: Sequence[str],
        *,
        development: bool = False,
        run_id: str = "",
        environment: Mapping[str, str] | None = None,
        screen: int | None = None,
        timeout_s: float = CONTROLLER_START_TIMEOUT_S,
    ) -> MeshProcess:
        """Start the child and wait until its controller and its ingress listen.

        Args:
            addresses: ``host:port`` each; where the ingress listens, port 0 picks one.
            development: whether the texts of exceptions may reach clients.
            run_id: of the ``pyserve run`` that starts it.
            environment: changes to this process's environment, e.g. ``PYSERVE_HOME``.
            screen: pipe to the process that draws on the terminal, for what the mesh has to show.
            timeout_s: how long to wait; the child is killed when it passes.

        Raises:
            MeshHeld: another mesh has the home directory, or just starts there.
            MeshError: the child could not start; the message says why and what to do.
        """
        variables = inherited_environment(environment or {})
        settings = read_settings(variables)
        if settings.ingress.location is ProxyLocation.Disabled:
            addresses = ()
        home = MeshHome(settings.home)
        lease = home.lease()
        screens = () if screen is None else (screen,)
        liveness, liveness_of_child = (end.detach() for end in socket.socketpair())
        report, report_writer = os.pipe()
        command = [
            *(sys.executable, "-P", "-m", "pyserve.driver.own"),
            *(f"--address={address}" for address in addresses),
            f"--lease={lease.argument()}",
            f"--liveness-fd={liveness_of_child}",
            f"--report-fd={report_writer}",
            *(["--development"] if development else []),
            *([f"--run-id={run_id}"] if run_id else []),
            *(f"--screen-fd={each}" for each in screens),
        ]
        try:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                pass_fds=(lease.lock, lease.mark, liveness_of_child, report_writer, *screens),
                env=variables,
                # Ctrl-C in a terminal reaches the driver, which then ends the mesh in order.
                start_new_session=True,
            )
        except OSError as error:
            os.close(liveness)
            os.close(report)
            home.close()
            raise MeshError(f"{sys.executable} cannot be started: {error}") from error
        finally:
            os.close(liveness_of_child)
            os.close(report_writer)
            home.let_go()
        try:
            record = _read_report(report, time.monotonic() + timeout_s)
        except BaseException:
            os.close(liveness)
            _end(process, grace_s=1.0)
            raise
        finally:
            os.close(report)
        return cls(process, record, liveness)

    @property
    def pid(self) -> int:
        """The child's process id."""
        return self._process.pid

    def address(self) -> MeshAddress:
        """Return the controller's address with the token."""
        return self.record.address()

    def poll(self) -> int | None:
        """Return the exit status, or ``None`` while the child runs."""
        return self._process.poll()

    def hurry(self) -> bool:
        """Kill the child unless others need it; in that case only this process's applications end.

        Unlike ``close`` this takes no lock, so a signal handler may call it whatever it
        interrupted. A child that does not answer within five seconds is killed.

        Returns:
            Whether the mesh stays for others.
        """
        answer = b""
        with contextlib.suppress(OSError):  # It has ended, or was let go in order to end.
            os.write(self._liveness, b"!")
            if select.select([self._liveness], [], [], _HURRY_TIMEOUT_S)[0]:
                answer = os.read(self._liveness, 1)
        if answer == MESH_STAYS:
            return True
        self.kill()
        return False

    def kill(self) -> None:
        """Kill the child, and with it all replicas, without waiting; takes no lock."""
        if self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._process.pid, signal.SIGKILL)

    def close(self, timeout_s: float) -> int:
        """Let the mesh drain and end; kill it when ``timeout_s`` passes. Idempotent.

        Returns:
            The exit status of the child.
        """
        self.let_go()
        return _end(self._process, grace_s=timeout_s)

    def let_go(self) -> None:
        """Let the child go on, or end, by itself. Idempotent."""
        if self._liveness >= 0:
            os.close(self._liveness)
            self._liveness = -1


def _read_report(report: int, deadline: float) -> MeshRecord:
    text = b""
    while not text.endswith(b"\n"):
        left_s = deadline - time.monotonic()
        if left_s <= 0 or not select.select([report], [], [], left_s)[0]:
            raise MeshError("the mesh did not start in time; its output says how far it came")
        chunk = os.read(report, 65536)
        if not chunk or len(text) > _REPORT_BYTES_MAX:
            raise MeshError("the mesh ended while it started; its output above says why")
        text += chunk
    answer = json.loads(text)
    if "error" in answer:
        kind = MeshHeld if answer.get("is_held") else MeshError
        raise kind(answer["error"])
    return MeshRecord.from_json(text.decode())


def _end(process: subprocess.Popen[bytes], *, grace_s: float) -> int:
    with contextlib.suppress(subprocess.TimeoutExpired):
        return process.wait(timeout=grace_s)
    process.kill()
    return process.wait()


def open_home(options: argparse.Namespace, settings: MeshSettings) -> MeshHome:
    """Take the home directory, or share the keeper's.

    Args:
        options: of the command line.
        settings: which home.

    Raises:
        MeshHeld: another controller holds it.
        MeshError: it is not private, it is full, or a provided token cannot be read.
    """
    if options.lease is not None:
        return MeshHome(settings.home, lease=Lease.from_argument(options.lease))
    return MeshHome(
        settings.home,
        lasting=options.persistent,
        token=_given_token(settings) if options.persistent else b"",
        has_replicas=has_members,
    )


def can_find_again(launcher: LauncherConfig) -> bool:
    """Say whether a next controller on this machine would find the replicas of one that died."""
    if launcher.name != PROCESS or not hasattr(os, "pidfd_open"):
        return False
    try:
        os.close(os.pidfd_open(os.getpid()))
    except OSError:  # A kernel before 5.3.
        return False
    return True


def report(descriptor: int | None, answer: object) -> None:
    """Report to the process that waits for the start, or on standard output."""
    text = json.dumps(answer)
    if descriptor is None:
        sys.stdout.write(f"{text}\n")
        sys.stdout.flush()
        return
    # The reader may have given up, and then does not need the answer.
    with contextlib.suppress(BrokenPipeError), os.fdopen(descriptor, "w") as file:
        file.write(f"{text}\n")


def _given_token(settings: MeshSettings) -> bytes:
    """Return a token that was provided for this mesh, such as a Secret; b"": there is none."""
    path = settings.token_file
    return b"" if path is None or not path.exists() else read_token(path, "PYSERVE_TOKEN_FILE")
