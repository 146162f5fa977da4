"""HAProxy in front of a mesh that stays, whose controller is killed."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
import yaml

from tests.mesh.commands import pyserve
from tests.mesh.haproxy.conftest import VARIABLES, outer
from tests.mesh.start.processes import END_TIMEOUT_S, pids, standing, status_of
from tests.support.waiting import wait_until

pytestmark = [
    pytest.mark.slow,
    pytest.mark.external,
    pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="replicas outlive nobody here"),
]
_TIMEOUT_S = 20.0


def deploy(environment: dict[str, str], folder: Path, replicas: int) -> None:
    """Deploy the application from a file, with so many replicas."""
    application = {
        "name": "api",
        "import_path": "tests.mesh.haproxy.apps:api",
        "deployments": [{"name": "Api", "num_replicas": replicas}],
    }
    file = folder / "api.yaml"
    file.write_text(yaml.safe_dump({"applications": [application]}))
    done = pyserve("deploy", str(file), environment=environment)
    assert 0 == done.returncode, done.stderr


def running(environment: dict[str, str]) -> dict[str, int]:
    """Return the replicas that serve, with their processes."""
    (deployment,) = status_of(environment)["applications"]["api"]["deployments"].values()
    return {
        each["replica_id"]: each["pid"]
        for each in deployment["replicas"]
        if each["state"] == "RUNNING"
    }


def get(address: str) -> int:
    """Call the application over a connection of its own; return the status."""
    return httpx.get(f"http://{address}/items/1", timeout=_TIMEOUT_S).status_code


@contextmanager
def caller(address: str) -> Iterator[Callable[[], int]]:
    """Call the application all the time, and count; every call has to be answered with 200."""
    over, statuses = threading.Event(), []

    def call() -> None:
        while not over.is_set():
            statuses.append(get(address))

    with ThreadPoolExecutor(1) as threads:
        calling = threads.submit(call)
        try:
            yield lambda: len(statuses)
        finally:
            over.set()
        calling.result(END_TIMEOUT_S)
    assert {200} == set(statuses)


@pytest.mark.parity("S-60")
def test_calls_go_on_and_the_next_controller_is_followed(
    mesh_environment: dict[str, str], tmp_path: Path
) -> None:
    environment = {**mesh_environment, **VARIABLES, "PYSERVE_INGRESS_DRAIN_S": "0"}
    with standing(environment) as mesh:
        deploy(environment, tmp_path, 2)
        before = running(environment)
        with outer(environment, tmp_path) as proxy:
            for replica_id in before:
                proxy.wait_for(replica_id)
            log = tmp_path / "watch.log"
            written = log.read_text().count(": written")
            with caller(proxy.address) as count:
                wait_until(lambda: count() > 10, _TIMEOUT_S)
                controller, ingress = pids(environment)
                os.kill(controller, signal.SIGKILL)
                mesh.shows("the controller runs again")
                wait_until(lambda: running(environment) == before, END_TIMEOUT_S)
                # HAProxy hears nothing of the facts that the next controller learns one by one.
                assert written == log.read_text().count(": written"), log.read_text()

                deploy(environment, tmp_path, 3)
                (added,) = running(environment).keys() - before.keys()
                proxy.wait_for(added)
                answered = count()
                wait_until(lambda: count() > answered + 10, _TIMEOUT_S)
            found = status_of(environment)
            assert (True, ingress) == (found["controller_pid"] != controller, pids(environment)[1])
            # No replica was left out meanwhile: then calls would have come to the ingress.
            assert 0 == found["ingress"]["counts"]["forwarded"]
