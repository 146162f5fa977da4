"""Starts meshes that stay, and ingresses of their own, as a user does."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import psutil

from pyserve.config import read_settings
from pyserve.control.discovery import find_mesh
from pyserve.driver.client import ControlClient
from pyserve.driver.status import read_status
from tests.mesh.commands import ROOT
from tests.support.leftovers import SESSION_VARIABLE
from tests.support.waiting import wait_until
from tests.support.warm import Running, start_command

START_TIMEOUT_S = 50.0
END_TIMEOUT_S = 30.0


class Command:
    """A command in a process of its own, and what it prints."""

    def __init__(self, process: Running, log: Path) -> None:
        self.process = process
        self._log = log

    def output(self) -> str:
        return self._log.read_text()

    def shows(self, text: str, timeout_s: float = START_TIMEOUT_S) -> None:
        """Wait for a text in the output of a process that runs."""
        wait_until(
            lambda: text in self.output() or self.process.poll() is not None, timeout_s, text
        )
        assert text in self.output(), self.output()

    def end(self, number: int = signal.SIGTERM) -> int:
        """Send a signal and return the exit status."""
        self.process.send_signal(number)
        return self.process.wait(END_TIMEOUT_S)


@contextmanager
def command(environment: dict[str, str], *arguments: str, folder: Path = ROOT) -> Iterator[Command]:
    """Run ``pyserve arguments`` until the end of the context, which is SIGTERM if need be."""
    home = Path(environment["PYSERVE_HOME"])
    home.mkdir(0o700, exist_ok=True)
    log = home / f"{arguments[0]}-{os.urandom(4).hex()}.log"
    with log.open("wb") as output:
        process = start_command(
            arguments,
            environment=environment,
            folder=folder,
            stdout=output,
            stderr=output,
            # Like the script of that name, which has nothing of its folder on sys.path.
            imports_from_folder=False,
        )
    running = Command(process, log)
    try:
        yield running
        if process.poll() is None:
            running.end()
    except BaseException as error:
        error.add_note(running.output())
        _kill_all(environment[SESSION_VARIABLE])
        raise
    finally:
        process.kill()
        process.wait()


def _kill_all(session: str) -> None:
    """Leave nothing of a test that has failed."""
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            is_ours = process.environ().get(SESSION_VARIABLE) == session
            if is_ours and process.pid != os.getpid():
                process.kill()


@contextmanager
def standing(environment: dict[str, str], *arguments: str) -> Iterator[Command]:
    """Have a mesh that stays; without other arguments its ingress listens at a free port."""
    with command(environment, "start", *(arguments or ("--address", "127.0.0.1:0"))) as running:
        running.shows("the mesh is ready at ")
        yield running


@contextmanager
def application(
    environment: dict[str, str], target: str = "tests.mesh.ingress.apps:web"
) -> Iterator[Command]:
    """Have an application in a mesh that stands; it ends with the context."""
    with command(environment, "run", target) as running:
        running.shows(" is ready at ")
        yield running


def status_of(environment: dict[str, str]) -> dict[str, Any]:
    """Return what ``pyserve status --json`` says, without a process that might start too late."""
    address = find_mesh(read_settings({"PYSERVE_HOME": environment["PYSERVE_HOME"]}))
    assert address is not None, "a mesh runs"
    with contextlib.closing(ControlClient(address)) as client:
        found: dict[str, Any] = json.loads(
            json.dumps(dataclasses.asdict(read_status(client.status())))
        )
    return found


def address_of(environment: dict[str, str]) -> str:
    """Return where the only ingress listens, as soon as the controller knows of it."""
    wait_until(lambda: status_of(environment)["addresses"], START_TIMEOUT_S, "an address")
    (address,) = status_of(environment)["addresses"]
    return str(address)


def healthz(address: str) -> int:
    """Return the status of what the ingress answers by itself, over a connection of its own."""
    return httpx.get(f"http://{address}/-/healthz", timeout=END_TIMEOUT_S).status_code


def routes(address: str) -> int:
    """Return the status of what it answers whatever is deployed."""
    return httpx.get(f"http://{address}/-/routes", timeout=END_TIMEOUT_S).status_code


def pids(environment: dict[str, str]) -> tuple[int, int]:
    """Return the processes of the controller and of the only ingress, as soon as it is known."""
    address_of(environment)
    found = status_of(environment)
    (ingress,) = [each for each in found["ingresses"] if each["addresses"]]
    return found["controller_pid"], ingress["pid"]


def far_from(mesh: Command, environment: dict[str, str]) -> dict[str, str]:
    """Return the environment of a process that knows a controller by its address and token only.

    The mesh was started with ``PYSERVE_CONTROLLER=127.0.0.1:0``.
    """
    line = mesh.output().partition("the controller listens at ")[2].partition("\n")[0]
    places, _, token = line.partition("; its token is in ")
    return {
        **environment,
        "PYSERVE_HOME": f"{environment['PYSERVE_HOME']}/far",
        "PYSERVE_CONTROLLER": places.rpartition(" and ")[2],
        "PYSERVE_TOKEN_FILE": token,
    }
