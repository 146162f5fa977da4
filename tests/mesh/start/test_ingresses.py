"""Ingresses as processes of their own: several, far from the controller, early, refused, silent."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from tests.mesh.commands import pyserve
from tests.mesh.start.processes import (
    END_TIMEOUT_S,
    application,
    command,
    far_from,
    healthz,
    status_of,
)
from tests.support.waiting import wait_until

pytestmark = pytest.mark.slow


def proxies(environment: dict[str, str]) -> dict[str, str]:
    """Return the state of each ingress by its node."""
    return {each["node"]: each["state"] for each in status_of(environment)["ingresses"]}


def named(environment: dict[str, str], node: str) -> dict[str, str]:
    return {**environment, "PYSERVE_NODE_ID": node}


@pytest.mark.parity("G-65")
def test_each_of_several_ingresses_serves_what_is_reported_as_ready(
    mesh_environment: dict[str, str],
) -> None:
    with (
        command(mesh_environment, "start", "--no-ingress") as mesh,
        command(named(mesh_environment, "a"), "ingress", "--address", "127.0.0.1:0") as a,
        command(named(mesh_environment, "b"), "ingress", "--address", "127.0.0.1:0") as b,
    ):
        for each in (a, b):
            each.shows("the ingress listens at ")
        assert {"a": "HEALTHY", "b": "HEALTHY"} == proxies(mesh_environment)
        with application(mesh_environment) as run:
            addresses = status_of(mesh_environment)["addresses"]
            assert 2 == len(addresses)
            for address in addresses:
                assert address in run.output()
                # At once: what is reported as ready can be called at each of them.
                assert 200 == httpx.get(f"http://{address}/", timeout=END_TIMEOUT_S).status_code
            assert 0 == a.end()
            drained = {"a": "DRAINED", "b": "HEALTHY"}
            wait_until(lambda: drained == proxies(mesh_environment), END_TIMEOUT_S)
            (left,) = status_of(mesh_environment)["addresses"]
            assert 200 == httpx.get(f"http://{left}/", timeout=END_TIMEOUT_S).status_code
        assert 0 == pyserve("shutdown", environment=mesh_environment).returncode
        assert 0 == b.process.wait(END_TIMEOUT_S)
        assert "the mesh ends, and this ingress with it" in b.output()
        assert 0 == mesh.process.wait(END_TIMEOUT_S)


@pytest.mark.parity("G-65")
def test_draining_ingress_is_told_as_such(mesh_environment: dict[str, str]) -> None:
    environment = {**named(mesh_environment, "a"), "PYSERVE_INGRESS_DRAIN_S": "20"}
    with (
        command(mesh_environment, "start", "--no-ingress") as mesh,
        command(environment, "ingress", "--address", "127.0.0.1:0") as ingress,
    ):
        ingress.shows("the ingress listens at ")
        mesh.shows("is ready at")
        (address,) = status_of(mesh_environment)["addresses"]
        ingress.process.send_signal(signal.SIGTERM)
        wait_until(lambda: {"a": "DRAINING"} == proxies(mesh_environment))
        assert 503 == healthz(address)
        # The second one does not wait.
        assert 1 == ingress.end()


@pytest.mark.parity("G-65")
def test_ingress_that_is_stopped_is_unhealthy_until_it_goes_on(
    mesh_environment: dict[str, str],
) -> None:
    with (
        command(mesh_environment, "start", "--no-ingress") as mesh,
        command(named(mesh_environment, "a"), "ingress", "--address", "127.0.0.1:0") as ingress,
    ):
        mesh.shows("is ready at")
        ingress.shows("the ingress listens at ")
        os.kill(ingress.process.pid, signal.SIGSTOP)
        assert {"a": "UNHEALTHY"} == proxies(mesh_environment)
        os.kill(ingress.process.pid, signal.SIGCONT)
        wait_until(lambda: {"a": "HEALTHY"} == proxies(mesh_environment), END_TIMEOUT_S)
        ingress.process.kill()
        wait_until(lambda: {"a": "UNHEALTHY"} == proxies(mesh_environment), END_TIMEOUT_S)
        assert [] == status_of(mesh_environment)["addresses"]
        with command(
            named(mesh_environment, "a"), "ingress", "--address", "127.0.0.1:0"
        ) as successor:
            successor.shows("the ingress listens at ")
            assert {"a": "HEALTHY"} == proxies(mesh_environment)
            assert 1 == len(status_of(mesh_environment)["ingresses"])


def test_time_limit_reaches_ingresses_of_their_own(mesh_environment: dict[str, str]) -> None:
    program = "import pyserve as serve; serve.start(http_options={'request_timeout_s': 0.5})"
    with (
        command(mesh_environment, "start", "--no-ingress") as mesh,
        command(mesh_environment, "ingress", "--address", "127.0.0.1:0") as ingress,
    ):
        mesh.shows("is ready at")
        ingress.shows("the ingress listens at ")
        with application(mesh_environment):
            (address,) = status_of(mesh_environment)["addresses"]
            _run(program, mesh_environment)
            answer = httpx.get(f"http://{address}/?wait_s=60", timeout=END_TIMEOUT_S)
            assert 408 == answer.status_code


def _run(program: str, environment: dict[str, str]) -> None:
    subprocess.run(
        [sys.executable, "-c", program], env=environment, check=True, timeout=END_TIMEOUT_S
    )


def test_ingress_finds_its_controller_over_tcp(
    mesh_environment: dict[str, str], tmp_path: Path
) -> None:
    """As in containers: another home, the token in a file, the controller by its address."""
    wrong = tmp_path / "token"
    wrong.touch(0o600)
    wrong.write_text("00" * 32)
    near = {**mesh_environment, "PYSERVE_CONTROLLER": "127.0.0.1:0"}
    with command(near, "start", "--no-ingress") as mesh:
        mesh.shows("is ready at")
        far = far_from(mesh, mesh_environment)
        strange = {**far, "PYSERVE_TOKEN_FILE": str(wrong)}
        refused = pyserve("ingress", "--address", "127.0.0.1:0", environment=strange)
        assert 1 == refused.returncode
        assert "refuses this ingress" in refused.stderr, refused.stderr
        assert "Traceback" not in refused.stderr
        with command(far, "ingress", "--address", "127.0.0.1:0") as ingress:
            ingress.shows("the ingress listens at ")
            with application(mesh_environment):
                (address,) = status_of(mesh_environment)["addresses"]
                answer = httpx.get(f"http://{address}/", timeout=END_TIMEOUT_S)
                assert 200 == answer.status_code


def test_ingress_may_come_before_its_mesh(mesh_environment: dict[str, str]) -> None:
    with command(mesh_environment, "ingress", "--address", "127.0.0.1:0") as ingress:
        ingress.shows("this ingress waits for one")
        with command(mesh_environment, "start", "--no-ingress") as mesh:
            mesh.shows("is ready at")
            ingress.shows("the ingress listens at ")
            assert 0 == ingress.end()
            assert 0 == mesh.end()


def test_ingress_that_waits_ends_with_a_signal(mesh_environment: dict[str, str]) -> None:
    with command(mesh_environment, "ingress", "--address", "127.0.0.1:0") as ingress:
        ingress.shows("this ingress waits for one")
        assert 0 == ingress.end()


@pytest.mark.parametrize(
    ("arguments", "variables", "status", "says"),
    [
        (("--address", "nowhere"), {}, 2, "--address"),
        ((), {"PYSERVE_INGRESS_LOCATION": "Disabled"}, 1, "take the variable away"),
        (
            (),
            {"PYSERVE_CONTROLLER": "127.0.0.1:1"},
            1,
            "set PYSERVE_TOKEN_FILE to the file that holds it",
        ),
    ],
)
def test_ingress_that_cannot_be_says_why(
    arguments: tuple[str, ...],
    variables: dict[str, str],
    status: int,
    says: str,
    mesh_environment: dict[str, str],
) -> None:
    done = pyserve("ingress", *arguments, environment={**mesh_environment, **variables})

    assert (status, True) == (done.returncode, says in done.stderr), done.stderr
    assert "Traceback" not in done.stderr
