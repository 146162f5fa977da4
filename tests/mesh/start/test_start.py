"""``pyserve start``: a mesh that stays, whichever of its processes dies."""

from __future__ import annotations

import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path

import httpx
import psutil
import pytest

from tests.mesh.commands import in_flight, pyserve
from tests.mesh.start.processes import (
    END_TIMEOUT_S,
    address_of,
    application,
    command,
    pids,
    routes,
    standing,
    status_of,
)
from tests.support.waiting import wait_until

pytestmark = pytest.mark.slow


def get(address: str, **params: float) -> int:
    """Call the application over a connection of its own; return the status."""
    return httpx.get(f"http://{address}/", params=params, timeout=2 * END_TIMEOUT_S).status_code


@pytest.mark.parity("G-63")
def test_mesh_outlives_the_runs_in_it(mesh_environment: dict[str, str]) -> None:
    with standing(mesh_environment) as mesh:
        for _ in range(2):
            with application(mesh_environment) as run:
                address = address_of(mesh_environment)
                assert f"is ready at {address}" in run.output()
                assert 200 == get(address)
                assert 0 == run.end(signal.SIGINT)
            assert {} == status_of(mesh_environment)["applications"]
        assert 0 == mesh.end()


@pytest.mark.parity("G-63")
@pytest.mark.parity("G-65")
def test_status_tells_the_ingress_from_the_controller(mesh_environment: dict[str, str]) -> None:
    environment = {**mesh_environment, "PYSERVE_NODE_ID": "left"}
    with standing(environment) as mesh, application(environment):
        address = address_of(environment)
        with ThreadPoolExecutor(1) as threads:
            slow = threads.submit(get, address, wait_s=1.5)
            wait_until(lambda: 1 == in_flight(environment))
            found = status_of(environment)
            (ingress,) = found["ingresses"]
            assert 200 == slow.result(END_TIMEOUT_S)
        assert ("left", "HEALTHY", [address], 1) == (
            ingress["node"],
            ingress["state"],
            ingress["addresses"],
            ingress["in_flight"],
        )
        assert ingress["pid"] not in (found["controller_pid"], mesh.process.pid)
        text = pyserve("status", environment=environment).stdout
        assert f"ingress on left  HEALTHY  pid {ingress['pid']}  {address}: " in text


@pytest.mark.parity("G-63")
def test_killed_ingress_is_replaced_at_the_same_port_and_calls_go_on(
    mesh_environment: dict[str, str],
) -> None:
    with standing(mesh_environment) as mesh, application(mesh_environment):
        address = address_of(mesh_environment)
        controller, ingress = pids(mesh_environment)
        with callers(address) as count:
            wait_until(lambda: count() > 10)
            os.kill(ingress, signal.SIGKILL)
            mesh.shows(
                f"the ingress (process {ingress}) was ended by signal 9 (SIGKILL); a new one "
                f"starts at once"
            )
            mesh.shows("the ingress runs again")
            before = count()
            wait_until(lambda: count() > before + 10, END_TIMEOUT_S)
        assert address == address_of(mesh_environment)
        assert controller == pids(mesh_environment)[0]
        wait_until(lambda: ingress != pids(mesh_environment)[1], END_TIMEOUT_S)


@contextmanager
def callers(address: str) -> Iterator[Callable[[], int]]:
    """Call the application all the time, as clients do that come again; count what is answered."""
    over, answered = threading.Event(), []

    def call() -> None:
        while not over.is_set():
            try:
                status = get(address)
            except httpx.TransportError:
                over.wait(0.02)
                continue
            assert 200 == status
            answered.append(status)

    with ThreadPoolExecutor(2) as threads:
        calling = [threads.submit(call) for _ in range(2)]
        try:
            yield lambda: len(answered)
        finally:
            over.set()
        for each in calling:
            each.result(END_TIMEOUT_S)


@pytest.mark.parity("G-63")
def test_killed_controller_is_replaced_and_the_port_answers_all_the_while(
    mesh_environment: dict[str, str],
) -> None:
    with standing(mesh_environment) as mesh:
        address = address_of(mesh_environment)
        controller, _ = pids(mesh_environment)
        os.kill(controller, signal.SIGSTOP)
        assert 200 == routes(address), "the ingress does not need it"
        os.kill(controller, signal.SIGKILL)
        assert 200 == routes(address)
        mesh.shows("the controller runs again")
        wait_until(lambda: [address] == status_of(mesh_environment)["addresses"], END_TIMEOUT_S)
        assert controller != pids(mesh_environment)[0]
        with application(mesh_environment, "tests.mesh.ingress.apps:web") as run:
            assert 200 == get(address), run.output()
        assert 0 == mesh.end()


def replica_pids(environment: dict[str, str]) -> set[int]:
    applications = status_of(environment)["applications"].values()
    return {
        replica["pid"]
        for each in applications
        for deployment in each["deployments"].values()
        for replica in deployment["replicas"]
        if replica["state"] == "RUNNING"
    }


def deploy_web(environment: dict[str, str], tmp_path: Path) -> None:
    file = tmp_path / "serve.yaml"
    file.write_text("applications:\n- import_path: tests.mesh.ingress.apps:web\n")
    done = pyserve("deploy", str(file), environment=environment)
    assert 0 == done.returncode, done.stderr


@pytest.mark.long
@pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="replicas outlive nobody here")
@pytest.mark.parity("G-66")
def test_applications_survive_the_controller_and_the_mesh(
    mesh_environment: dict[str, str], tmp_path: Path
) -> None:
    with standing(mesh_environment) as mesh:
        deploy_web(mesh_environment, tmp_path)
        address, before = address_of(mesh_environment), replica_pids(mesh_environment)
        over = threading.Event()

        def call() -> list[int]:
            statuses = []
            while not over.is_set():
                statuses.append(get(address))
            return statuses

        with ThreadPoolExecutor(1) as threads:
            calling = threads.submit(call)
            try:
                os.kill(pids(mesh_environment)[0], signal.SIGKILL)
                mesh.shows("the controller runs again")
                wait_until(lambda: replica_pids(mesh_environment) == before, END_TIMEOUT_S)
            finally:
                over.set()
            assert {200} == set(calling.result(END_TIMEOUT_S))
        assert 0 == mesh.end()
    with standing(mesh_environment) as mesh:
        # A signal ends the processes, and the next start brings the applications up again.
        wait_until(lambda: len(replica_pids(mesh_environment)) == len(before), END_TIMEOUT_S)
        assert not before & replica_pids(mesh_environment)
        address = address_of(mesh_environment)
        wait_until(lambda: get(address) == 200, END_TIMEOUT_S)
        assert 0 == pyserve("shutdown", environment=mesh_environment).returncode
        assert 0 == mesh.process.wait(END_TIMEOUT_S)
    with standing(mesh_environment):
        assert {} == status_of(mesh_environment)["applications"], "a shutdown removes them"


def test_process_that_dies_on_arrival_is_not_started_all_the_time(
    mesh_environment: dict[str, str], tmp_path: Path
) -> None:
    """Its rules cannot be read meanwhile: attempts come at growing intervals."""
    rules = tmp_path / "access.yaml"
    rules.write_text("default: allow")
    with standing({**mesh_environment, "PYSERVE_ACCESS_FILE": str(rules)}) as mesh:
        address = address_of(mesh_environment)
        rules.write_text("default: maybe")
        os.kill(pids(mesh_environment)[1], signal.SIGKILL)
        mesh.shows("a new one starts in 1 s")
        mesh.shows("a new one starts in 2 s")
        assert "default='maybe' is not allowed" in mesh.output()
        rules.write_text("default: allow")
        mesh.shows("the ingress runs again")
        assert address == address_of(mesh_environment)


@pytest.mark.parity("G-63")
@pytest.mark.parity("G-57")
def test_shutdown_ends_a_mesh_that_stays(mesh_environment: dict[str, str]) -> None:
    with standing(mesh_environment) as mesh, application(mesh_environment) as run:
        address = address_of(mesh_environment)
        with ThreadPoolExecutor(1) as threads:
            slow = threads.submit(get, address, wait_s=2)
            wait_until(lambda: 1 == in_flight(mesh_environment))
            done = pyserve("shutdown", environment=mesh_environment)
            assert 200 == slow.result(END_TIMEOUT_S), "what was in flight has its answer"
        assert 0 == done.returncode, done.stderr
        assert 0 == mesh.process.wait(END_TIMEOUT_S)
        assert 0 == run.process.wait(END_TIMEOUT_S)
        assert "the mesh was shut down by another command" in mesh.output()
        assert "a new one starts" not in mesh.output()


def test_signal_lets_calls_finish(mesh_environment: dict[str, str]) -> None:
    with standing(mesh_environment) as mesh, application(mesh_environment):
        address = address_of(mesh_environment)
        with ThreadPoolExecutor(1) as threads:
            slow = threads.submit(get, address, wait_s=2)
            wait_until(lambda: 1 == in_flight(mesh_environment))
            assert 0 == mesh.end(signal.SIGINT)
            assert 200 == slow.result(END_TIMEOUT_S)


def test_second_signal_ends_at_once(mesh_environment: dict[str, str]) -> None:
    with standing(mesh_environment) as mesh, application(mesh_environment):
        address = address_of(mesh_environment)
        children = psutil.Process(mesh.process.pid).children(recursive=True)
        with ThreadPoolExecutor(1) as threads:
            endless = threads.submit(get, address, wait_s=600)
            wait_until(lambda: 1 == in_flight(mesh_environment))
            mesh.process.send_signal(signal.SIGTERM)
            mesh.shows("draining; a second signal stops at once")
            mesh.process.send_signal(signal.SIGTERM)
            # Calls had twenty seconds, and this one would have taken all of them.
            assert 128 + signal.SIGTERM == mesh.process.wait(10)
            # Who is killed last may be there for a moment, until somebody has asked how it ended.
            wait_until(lambda: not [each for each in children if each.is_running()])
            with suppress(httpx.TransportError):
                assert endless.result(END_TIMEOUT_S) >= 500


def test_mesh_that_lost_its_supervisor_can_still_be_shut_down(
    mesh_environment: dict[str, str],
) -> None:
    with standing(mesh_environment) as mesh:
        mesh.process.kill()
        mesh.process.wait(END_TIMEOUT_S)
        again = pyserve("start", "--address", "127.0.0.1:0", environment=mesh_environment)
        assert 1 == again.returncode
        assert "end it with `pyserve shutdown`" in again.stderr
        done = pyserve("shutdown", environment=mesh_environment)
        assert 0 == done.returncode, done.stderr
    # The fixture looks whether a process is left.


@pytest.mark.parametrize(
    ("arguments", "variables", "status", "says"),
    [
        (("--no-ingress", "--address", "127.0.0.1:0"), {}, 2, "--no-ingress runs the controller"),
        (("--address", "nowhere"), {}, 2, "--address"),
        ((), {"PYSERVE_CONTROLLER": "unix:/tmp/x.sock"}, 2, "names a controller to join"),
        ((), {"PYSERVE_INGRESS_PORT": "many"}, 2, "PYSERVE_INGRESS_PORT"),
        (("--tls-cert", "README.md"), {}, 2, "--tls-key"),
    ],
)
def test_wrong_usage_is_told_before_anything_starts(
    arguments: tuple[str, ...],
    variables: dict[str, str],
    status: int,
    says: str,
    mesh_environment: dict[str, str],
) -> None:
    done = pyserve("start", *arguments, environment={**mesh_environment, **variables})

    assert (status, True) == (done.returncode, says in done.stderr), done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("taken", "says"),
    [
        ("ingress", "port {port} is taken: another process listens at"),
        ("controller", "the controller cannot listen for other machines: Failed to bind to"),
    ],
)
def test_port_that_is_taken_is_one_clear_message(
    taken: str, says: str, mesh_environment: dict[str, str]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        place = f"127.0.0.1:{port}"
        environment = dict(mesh_environment)
        if taken == "controller":
            environment["PYSERVE_CONTROLLER"] = place
        address = place if taken == "ingress" else "127.0.0.1:0"
        done = pyserve("start", "--address", address, environment=environment)

    assert 1 == done.returncode, done.stdout + done.stderr
    assert says.format(port=port) in done.stderr, done.stderr
    assert "Traceback" not in done.stderr


def test_controller_alone_is_ready_without_an_ingress(mesh_environment: dict[str, str]) -> None:
    with command(mesh_environment, "start", "--no-ingress") as mesh:
        mesh.shows("the mesh is ready at no address")
        found = status_of(mesh_environment)
        assert ([], []) == (found["addresses"], found["ingresses"])
        assert 0 == mesh.end()
