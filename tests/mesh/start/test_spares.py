"""Meshes that keep interpreters ready for future replicas."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import psutil
import pytest

import pyserve
from tests.mesh.start import apps
from tests.mesh.start.processes import END_TIMEOUT_S, pids, standing, status_of
from tests.support.leftovers import SESSION_VARIABLE
from tests.support.session import attached
from tests.support.waiting import wait_until

pytestmark = pytest.mark.slow


def spares(environment: dict[str, str]) -> set[int]:
    """Return the processes of this mesh that were started as spares."""
    found = set()
    for process in psutil.process_iter():
        try:
            if (
                process.environ().get(SESSION_VARIABLE) == environment[SESSION_VARIABLE]
                and "--spare-fd" in process.cmdline()
            ):
                found.add(process.pid)
        except psutil.Error:
            continue
    return found


def replicas(environment: dict[str, str]) -> list[tuple[str, int]]:
    """Return states and processes of what the status says there is."""
    return [
        (replica["state"], replica["pid"])
        for application in status_of(environment)["applications"].values()
        for deployment in application["deployments"].values()
        for replica in deployment["replicas"]
    ]


def ask() -> object:
    return pyserve.get_app_handle("default").remote().result(timeout_s=END_TIMEOUT_S)


@pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="replicas outlive nobody here")
@pytest.mark.parity("G-66")
def test_a_spare_becomes_a_replica_and_outlives_the_controller_as_one(
    mesh_environment: dict[str, str],
) -> None:
    environment = {**mesh_environment, "PYSERVE_SPARE_REPLICAS": "1"}
    home = Path(environment["PYSERVE_HOME"])
    with standing(environment) as mesh:
        wait_until(lambda: spares(environment), END_TIMEOUT_S, "there is a spare")
        (first,) = spares(environment)
        assert [] == replicas(environment)
        with attached(home):
            pyserve.run(apps.blue, route_prefix=None)
            assert [("RUNNING", first)] == replicas(environment)
            assert "blue" == ask(), "it was there before the import"
        wait_until(lambda: len(spares(environment)) == 2, END_TIMEOUT_S, "another one waits")
        (second,) = spares(environment) - {first}

        os.kill(pids(environment)[0], signal.SIGKILL)

        mesh.shows("the controller runs again")
        wait_until(
            lambda: len(found := spares(environment)) == 2 and second not in found,
            END_TIMEOUT_S,
            "the next controller has one of its own",
        )
        wait_until(lambda: [("RUNNING", first)] == replicas(environment), END_TIMEOUT_S)
        with attached(home):
            assert "blue" == ask()
            # A process of the next controller that ends is replaced by its spare.
            (third,) = spares(environment) - {first}
            os.kill(first, signal.SIGKILL)
            wait_until(lambda: replicas(environment) == [("RUNNING", third)], END_TIMEOUT_S)
            assert "blue" == ask()
        assert 0 == mesh.end()
