"""Replicas that end while no controller can replace them: no call waits for them for ever."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

import pyserve
from pyserve.exceptions import DeploymentUnavailable
from tests.mesh.start.processes import application, pids, standing, status_of
from tests.support.session import attached
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]
# As long as no replica may be reached, and what a busy machine adds.
GIVEN_UP_S = 50.0


@pyserve.deployment(num_replicas=2, max_ongoing_requests=1)
class Pair:
    """Tells which process it is."""

    async def pid(self) -> int:
        return os.getpid()


app = Pair.bind()


def _has_ended(pid: int) -> bool:
    # The first thread may end before the others, which hold the files until then.
    threads = list(Path(f"/proc/{pid}/task").iterdir())
    return len(threads) == 1 and psutil.Process(pid).status() == psutil.STATUS_ZOMBIE


@dataclass(frozen=True)
class Unattended:
    """Two replicas whose controller does nothing any more."""

    handle: pyserve.DeploymentHandle
    replicas: list[int]

    def kill(self, count: int) -> None:
        """End so many of the replicas, at once and for good."""
        for pid in self.replicas[:count]:
            os.kill(pid, signal.SIGKILL)
        # The stopped controller does not reap them. Their connections are closed by then: a call
        # that is written to one of them counts as started.
        wait_until(lambda: all(map(_has_ended, self.replicas[:count])))


@pytest.fixture
def unattended(mesh_environment: dict[str, str]) -> Iterator[Unattended]:
    with (
        standing(mesh_environment),
        application(mesh_environment, f"{__name__}:app"),
        attached(Path(mesh_environment["PYSERVE_HOME"])),
    ):
        handle = pyserve.get_app_handle("default")
        assert handle.pid.remote().result(timeout_s=20)
        found = status_of(mesh_environment)["applications"]["default"]["deployments"]["Pair"]
        controller, _ = pids(mesh_environment)
        os.kill(controller, signal.SIGSTOP)
        try:
            yield Unattended(handle, [each["pid"] for each in found["replicas"]])
        finally:
            os.kill(controller, signal.SIGCONT)


def test_calls_for_a_lost_replica_go_to_the_one_that_is_left(unattended: Unattended) -> None:
    unattended.kill(1)

    calls = [unattended.handle.pid.remote() for _ in range(10)]

    assert {unattended.replicas[1]} == {call.result(timeout_s=GIVEN_UP_S) for call in calls}


@pytest.mark.long
def test_calls_end_where_every_replica_is_lost(unattended: Unattended) -> None:
    """They have no deadline."""
    unattended.kill(2)

    for call in [unattended.handle.pid.remote() for _ in range(10)]:
        with pytest.raises(DeploymentUnavailable):
            call.result(timeout_s=GIVEN_UP_S)
    with pytest.raises(DeploymentUnavailable, match="no connection to any of its 2 replicas"):
        unattended.handle.pid.remote().result(timeout_s=GIVEN_UP_S)
