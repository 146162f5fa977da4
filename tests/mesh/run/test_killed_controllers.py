"""The controller of a program's mesh is killed: another one takes its place, and calls go on."""

from __future__ import annotations

import ast
import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from pyserve.control.discovery import read_record
from tests.mesh.start.processes import address_of, command, status_of
from tests.support.leftovers import SESSION_VARIABLE, processes_of
from tests.support.waiting import wait_until

# Several controllers start one after the other, which takes its time on a busy machine.
pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]
_TIMEOUT_S = 60.0
_CALLS = 10
_GREETING = """
import pyserve


@pyserve.deployment
class Greeter:
    def __init__(self, word="hello"):
        self.word = word
        print("begins to greet", flush=True)

    def __call__(self):
        return self.word


app = Greeter.bind()
"""
# It calls all the time, and answers lines with what they evaluate to.
_PROGRAM = """
import sys, threading
import pyserve
from greeting import Greeter

pyserve.start(address="127.0.0.1:0")
handle = pyserve.run(Greeter.bind())
lost, answers, over = [], [], threading.Event()


def call():
    while not over.is_set():
        try:
            answers.append(handle.remote().result(timeout_s=30))
        except Exception as error:
            lost.append(repr(error))
            return


def deploy(word, **options):
    return pyserve.run(Greeter.bind(word), **options).remote().result(timeout_s=30)


def names():
    return sorted(pyserve.status().applications)


def error_of(function):
    try:
        return repr(function())
    except Exception as error:
        return f"{type(error).__name__}: {error}"


calling = threading.Thread(target=call, daemon=True)
calling.start()
print("serves", flush=True)
for line in sys.stdin:
    print(repr(eval(line)), flush=True)
"""


class Program:
    """A program that has a mesh of its own."""

    def __init__(self, process: subprocess.Popen[str], environment: dict[str, str]) -> None:
        self.process = process
        self.home = Path(environment["PYSERVE_HOME"])
        self.session = environment[SESSION_VARIABLE]
        self._environment = environment

    def ask(self, expression: str) -> object:
        """Return what an expression is in the program."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(f"{expression}\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        assert line, f"the program ended at {expression}"
        return ast.literal_eval(line)

    def address(self) -> str:
        return address_of(self._environment)


@pytest.fixture
def program(mesh_environment: dict[str, str], folder: Path) -> Iterator[Program]:
    (folder / "program.py").write_text(_PROGRAM)
    with (folder / "errors").open("w") as errors:
        process = subprocess.Popen(
            [sys.executable, "program.py"],
            cwd=folder,
            env=mesh_environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        )
    try:
        assert process.stdout is not None
        assert "serves\n" == process.stdout.readline(), (folder / "errors").read_text()
        yield Program(process, mesh_environment)
    finally:
        print((folder / "errors").read_text())
        process.kill()
        process.communicate()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "greeting.py").write_text(_GREETING)
    return tmp_path


def _controller(home: Path) -> int:
    """Return the controller that listens; 0: none does."""
    record = read_record(home)
    return 0 if record is None else record.pid


def _kill_controller(home: Path) -> None:
    """Kill the controller, and wait for the one that takes its place."""
    former = _controller(home)
    os.kill(former, signal.SIGKILL)
    wait_until(lambda: _controller(home) not in (0, former), _TIMEOUT_S, "another controller")


class _Client:
    """Calls through the ingress over one connection, in a thread, until it is closed."""

    def __init__(self, address: str) -> None:
        self.answers: list[str] = []
        self.lost: list[str] = []
        self._url = f"http://{address}/"
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._call)

    def _call(self) -> None:
        with httpx.Client(timeout=_TIMEOUT_S) as client:
            while not self._over.is_set() and not self.lost:
                try:
                    self.answers.append(client.get(self._url).raise_for_status().text)
                except httpx.HTTPError as error:
                    self.lost.append(repr(error))

    def goes_on(self) -> None:
        """Wait for further answers."""
        wanted = len(self.answers) + _CALLS
        wait_until(
            lambda: self.lost or len(self.answers) >= wanted, _TIMEOUT_S, "answers of the ingress"
        )
        assert [] == self.lost

    def __enter__(self) -> _Client:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join(_TIMEOUT_S)


def _handles_go_on(program: Program) -> None:
    before = program.ask("len(answers)")
    assert isinstance(before, int)
    wait_until(
        lambda: program.ask(f"bool(lost) or len(answers) >= {before + _CALLS}"),
        _TIMEOUT_S,
        "answers of the handle",
    )
    assert [] == program.ask("lost")


def _left_in(home: Path) -> list[str]:
    return sorted(str(path.relative_to(home)) for path in home.rglob("*"))


@pytest.mark.long
def test_no_call_is_lost_and_deploys_work_after_three_kills_in_a_row(program: Program) -> None:
    with _Client(program.address()) as client:
        for _ in range(3):
            _kill_controller(program.home)
            client.goes_on()
            _handles_go_on(program)
        assert "good bye" == program.ask('deploy("good bye")')
        client.goes_on()

    assert [] == program.ask("lost")
    assert {"hello", "good bye"} == set(client.answers)
    assert "second" == program.ask('deploy("second", name="second", route_prefix="/second")')
    assert ["default", "second"] == program.ask("names()")
    assert None is program.ask('pyserve.delete("second")')
    assert ["default"] == program.ask("names()")
    program.ask("over.set()")
    assert None is program.ask("pyserve.shutdown()")
    assert None is program.ask("pyserve.shutdown()")
    assert ["mesh.lock"] == _left_in(program.home)


def test_a_dead_replica_is_replaced_by_the_next_controller(
    program: Program, mesh_environment: dict[str, str]
) -> None:
    program.ask("over.set()")
    (before,) = _replicas(mesh_environment)
    _kill_controller(program.home)
    wait_until(lambda: _replicas(mesh_environment) == [before], _TIMEOUT_S, "the same replica")

    os.kill(before, signal.SIGKILL)

    wait_until(
        lambda: _replicas(mesh_environment) not in ([], [before]), _TIMEOUT_S, "another replica"
    )
    assert "hello" == program.ask("handle.remote().result(timeout_s=30)")


def _replicas(environment: dict[str, str]) -> list[int]:
    """Return the processes of the replicas that serve."""
    with contextlib.suppress(KeyError):
        deployments = status_of(environment)["applications"]["default"]["deployments"]
        replicas = deployments["Greeter"]["replicas"]
        return [each["pid"] for each in replicas if each["state"] == "RUNNING"]
    return []


@pytest.mark.parametrize("has_another", [True, False], ids=["with another", "without one"])
def test_nothing_is_left_where_the_program_is_killed_too(
    program: Program, has_another: bool
) -> None:
    _kill_controller(program.home)
    if not has_another:
        # The second one in a row is not replaced at once.
        os.kill(_controller(program.home), signal.SIGKILL)
        wait_until(lambda: not _controller(program.home), _TIMEOUT_S, "no controller")

    program.process.kill()

    wait_until(lambda: not processes_of(program.session), _TIMEOUT_S, "no process is left")
    assert ["mesh.lock"] == _left_in(program.home)


@pytest.mark.long
def test_controllers_that_cannot_start_are_given_up_with_the_reason(
    program: Program, folder: Path
) -> None:
    (state,) = program.home.glob("mesh-*/mesh.sqlite3")
    for each in state.parent.glob("mesh.sqlite3*"):
        each.unlink()
    os.kill(_controller(program.home), signal.SIGKILL)
    wait_until(
        lambda: "no other one is tried, and the mesh ends" in (folder / "errors").read_text(),
        _TIMEOUT_S,
        "the last word",
    )

    assert "the state of the mesh is empty" in (folder / "errors").read_text()
    wait_until(
        lambda: str(program.ask("error_of(pyserve.status)")).startswith("MeshNotFound"),
        _TIMEOUT_S,
        "the mesh has ended",
    )
    program.ask("calling.join(60)")
    assert [] != program.ask("lost")
    refused = program.ask("error_of(lambda: handle.remote().result())")
    assert str(refused).startswith("MeshNotFound: this process is in no mesh"), refused
    assert "hello" == program.ask('deploy("hello")')


def test_pyserve_run_goes_on_with_another_controller(
    mesh_environment: dict[str, str], folder: Path
) -> None:
    home = Path(mesh_environment["PYSERVE_HOME"])
    asked = ("run", "greeting:app", "--address", "127.0.0.1:0")
    with command(mesh_environment, *asked, folder=folder) as running:
        running.shows(" is ready at ")
        with _Client(address_of(mesh_environment)) as client:
            _kill_controller(home)
            client.goes_on()
        wait_until(lambda: _replicas(mesh_environment), _TIMEOUT_S, "the replica is back")
        (before,) = _replicas(mesh_environment)
        os.kill(before, signal.SIGKILL)
        wait_until(
            lambda: _replicas(mesh_environment) not in ([], [before]), _TIMEOUT_S, "another replica"
        )
        # Its lines reach the terminal.
        wait_until(lambda: running.output().count("begins to greet") == 2, _TIMEOUT_S)

        assert 0 == running.end(signal.SIGINT)
    assert [] == [name for name in _left_in(home) if name.startswith("mesh-")]
