"""Two ``pyserve run`` in one mesh: whose the application is, and what each terminal shows."""

import os
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import grpc
import psutil
import pytest

from pyserve.config import read_settings
from pyserve.control.discovery import MeshHome, find_mesh
from pyserve.driver.client import ControlClient
from pyserve.driver.status import DeploymentStatusOverview, MeshStatus, read_status
from services.echo import echo_pb2, echo_pb2_grpc
from tests.mesh.commands import Foreground, foreground, pyserve, status_of
from tests.support.waiting import wait_until

# Several processes start one after the other, which takes its time on a busy machine.
pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]
_TIMEOUT_S = 60.0
TARGET = "tests.mesh.apps.small:app"


@contextmanager
def second(
    environment: dict[str, str], *arguments: str, address: str | None = None
) -> Iterator[Foreground]:
    with foreground(
        environment, TARGET, *arguments, address=address, log_name="second.log"
    ) as running:
        yield running


def shows(running: Foreground, text: str) -> None:
    wait_until(lambda: text in running.output(), _TIMEOUT_S, f"the terminal shows {text!r}")


def end(running: Foreground, number: signal.Signals = signal.SIGINT) -> None:
    running.process.send_signal(number)
    assert 0 == running.process.wait(_TIMEOUT_S), running.output()


def call(environment: dict[str, str]) -> int:
    called = pyserve("call", "services.echo.Echo/Perform", "payload=x", environment=environment)
    return called.returncode


def test_the_application_belongs_to_the_run_that_deployed_it_last(
    mesh_environment: dict[str, str],
) -> None:
    with foreground(mesh_environment) as first, second(mesh_environment) as later:
        replaces = f"pyserve: replaces the application 'default' of pyserve run (pid {first.pid})"
        assert replaces in later.output()
        shows(first, f"pyserve run (pid {later.pid}) replaces the application 'default' of this")

        end(first)

        shows(first, f"the mesh goes on for pyserve run (pid {later.pid})")
        assert 0 == call(mesh_environment)
        end(later)
    # The fixture looks whether a process is left.


def test_the_second_run_ends_only_what_is_its_own(mesh_environment: dict[str, str]) -> None:
    with foreground(mesh_environment) as first:
        with (
            second(mesh_environment) as later,
            foreground(mesh_environment, address=None, log_name="third.log") as third,
        ):
            end(later)
            assert ["default"] == list(status_of(mesh_environment)["applications"])
            end(third)
        assert [] == list(status_of(mesh_environment)["applications"])
        end(first)


def test_a_killed_starter_takes_its_own_application_along_and_no_other(
    mesh_environment: dict[str, str],
) -> None:
    with foreground(mesh_environment) as first, second(mesh_environment, "--name", "b") as later:
        os.kill(first.pid, signal.SIGKILL)
        wait_until(lambda: ["b"] == list(status_of(mesh_environment)["applications"]), _TIMEOUT_S)
        assert 0 == call(mesh_environment)
        end(later, signal.SIGTERM)


def test_the_starter_that_stops_at_once_takes_its_own_application_along_and_no_other(
    mesh_environment: dict[str, str],
) -> None:
    with (
        foreground(mesh_environment) as first,
        grpc.insecure_channel(first.address) as channel,
    ):
        stub = echo_pb2_grpc.EchoStub(channel)
        endless = stub.Perform.future(echo_pb2.PerformRequest(delay_s=600.0), timeout=500)
        wait_until(lambda: "performs for" in first.output(), _TIMEOUT_S)
        with second(mesh_environment, "--name", "b") as later:
            first.process.send_signal(signal.SIGINT)
            shows(first, "draining; a second Ctrl-C stops at once")
            first.process.send_signal(signal.SIGINT)
            assert 128 + signal.SIGINT == first.process.wait(_TIMEOUT_S), first.output()
            assert "pyserve: the mesh goes on for others" in first.output()
            # Its calls had twenty seconds, and this one would have taken all of them.
            assert isinstance(endless.exception(_TIMEOUT_S), grpc.RpcError)
            wait_until(lambda: ["b"] == applications(mesh_environment), _TIMEOUT_S)
            assert 0 == call(mesh_environment)
            end(later)


def test_what_a_killed_run_deployed_ends(mesh_environment: dict[str, str]) -> None:
    with (
        foreground(mesh_environment) as first,
        second(mesh_environment, "--name", "b") as killed,
        foreground(
            mesh_environment, *(TARGET, "--name", "c"), address=None, log_name="third.log"
        ) as third,
    ):
        os.kill(killed.pid, signal.SIGKILL)
        shows(first, f"pyserve run (pid {killed.pid}) is gone, and what it deployed ends: b")
        wait_until(lambda: ["c", "default"] == applications(mesh_environment), _TIMEOUT_S)
        end(third)
        end(first)


def test_a_run_whose_mesh_is_gone_ends_and_says_so(mesh_environment: dict[str, str]) -> None:
    with foreground(mesh_environment) as first, second(mesh_environment, "--name", "b") as later:
        controller = psutil.Process(status_of(mesh_environment)["controller_pid"])
        keeper = controller.parent()
        assert keeper is not None
        # In this order nobody is there to start another one, or to tidy up.
        keeper.suspend()
        controller.kill()
        keeper.kill()
        assert (1, 1) == (first.process.wait(_TIMEOUT_S), later.process.wait(_TIMEOUT_S))
        assert "the mesh of this application has ended unexpectedly" in later.output()
        assert "the mesh ended unexpectedly, by signal 9 (Killed); if nobody" in first.output()


def test_shutdown_ends_every_run(mesh_environment: dict[str, str]) -> None:
    with foreground(mesh_environment) as first, second(mesh_environment, "--name", "b") as later:
        assert 0 == pyserve("shutdown", environment=mesh_environment).returncode
        assert (0, 0) == (first.process.wait(_TIMEOUT_S), later.process.wait(_TIMEOUT_S))
        told = "pyserve: the mesh was shut down by another command"
        assert (1, 1) == (first.output().count(told), later.output().count(told))


def test_what_cannot_be_had_in_a_running_mesh_is_warned_of(
    mesh_environment: dict[str, str],
) -> None:
    with foreground(mesh_environment) as first:
        with second(
            mesh_environment, "--development", "--name", "b", address="127.0.0.1:0"
        ) as later:
            warnings = [line for line in later.output().splitlines() if "warning: " in line]
            port, development = warnings
            assert "127.0.0.1:0 picks no port" in port
            assert f"listens at {first.address}" in port
            assert "development mode has no effect" in development
            assert all("set PYSERVE_HOME to another directory" in line for line in warnings)
            end(later)
        end(first)


def test_a_mesh_without_its_file_is_found_by_all_commands(
    mesh_environment: dict[str, str],
) -> None:
    with foreground(mesh_environment) as first:
        (Path(mesh_environment["PYSERVE_HOME"]) / "mesh.json").unlink()
        status = status_of(mesh_environment)
        assert ["default"] == list(status["applications"])
        with second(mesh_environment, "--name", "other") as later:
            assert f"attached to the mesh of process {status['controller_pid']}" in later.output()
            end(later)
        ended = pyserve("shutdown", environment=mesh_environment)
        assert 0 == ended.returncode, ended.stderr
        assert 0 == first.process.wait(_TIMEOUT_S)


def test_two_first_runs_at_the_same_instant_share_one_mesh(
    mesh_environment: dict[str, str],
) -> None:
    with ExitStack() as stack, ThreadPoolExecutor() as pool:

        def start(name: str) -> Foreground:
            arguments = (TARGET, "--name", name)
            running = foreground(mesh_environment, *arguments, log_name=f"{name}.log")
            return stack.enter_context(running)

        runs = list(pool.map(start, "ab"))
        assert ["a", "b"] == applications(mesh_environment)
        attached = ["attached to the mesh of process" in run.output() for run in runs]
        assert [False, True] == sorted(attached)
        starter, other = runs if attached[1] else reversed(runs)
        end(other)
        end(starter)


def test_a_run_waits_for_a_mesh_that_starts_or_ends_just_now(
    mesh_environment: dict[str, str],
) -> None:
    with ExitStack() as stack, ThreadPoolExecutor() as pool:
        holder = stack.enter_context(MeshHome(Path(mesh_environment["PYSERVE_HOME"])))
        log = Path(mesh_environment["PYSERVE_HOME"]) / "run.log"
        starting = pool.submit(lambda: stack.enter_context(foreground(mesh_environment)))
        says = "pyserve: another mesh starts or ends here; waiting for it"
        wait_until(lambda: log.exists() and says in log.read_text(), _TIMEOUT_S, says)
        holder.close()
        end(starting.result(_TIMEOUT_S))


def test_the_terminal_shows_what_befalls_a_replica(mesh_environment: dict[str, str]) -> None:
    with foreground(mesh_environment) as running:
        (stopped,) = small(mesh_environment).replicas
        os.kill(stopped.pid, signal.SIGSTOP)
        name = stopped.replica_id
        shows(running, f"pyserve: Small: replica {name} does not answer health checks")
        assert ("UNHEALTHY", "SILENT") == states(mesh_environment)
        os.kill(stopped.pid, signal.SIGCONT)
        shows(running, f"pyserve: Small: replica {name} answers again")
        wait_until(lambda: ("HEALTHY", "RUNNING") == states(mesh_environment), _TIMEOUT_S)

        os.kill(stopped.pid, signal.SIGKILL)
        shows(running, f"Small: replica {name} ended (killed by SIGKILL), starting another")
        end(running)


def status(environment: dict[str, str]) -> MeshStatus:
    """Ask without a process of its own, whose start takes long on a busy machine."""
    address = find_mesh(read_settings({"PYSERVE_HOME": environment["PYSERVE_HOME"]}))
    assert address is not None
    with closing(ControlClient(address)) as client:
        return read_status(client.status())


def applications(environment: dict[str, str]) -> list[str]:
    return sorted(status(environment).applications)


def small(environment: dict[str, str]) -> DeploymentStatusOverview:
    return status(environment).applications["default"].deployments["Small"]


def states(environment: dict[str, str]) -> tuple[str, str]:
    found = small(environment)
    return found.status, found.replicas[0].state
