"""Objects that all replicas of a deployment share."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from typing import Any

import psutil
import pytest

import pyserve
from pyserve.api.graph import pack
from pyserve.driver.api import deploy
from pyserve.driver.session import Session
from pyserve.types import ApplicationName
from tests.mesh.actors.apps import Shop, app
from tests.support.mesh import running_mesh
from tests.support.session import attached
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.parity("G-15")]
TIMEOUT_S = 30.0


@pytest.fixture
def session() -> Iterator[Session]:
    with running_mesh("tests.mesh.actors.apps:app") as running, attached(running.home) as session:
        yield session


@pytest.fixture
def shop(session: Session) -> pyserve.DeploymentHandle[Any]:
    return pyserve.DeploymentHandle("Shop", "default")


def add(shop: pyserve.DeploymentHandle[Any], calls: int) -> list[tuple[int, str]]:
    """Call at once, so that both replicas and all threads have a part in it."""
    responses = [shop.add.remote(1) for _ in range(calls)]
    return [each.result(timeout_s=TIMEOUT_S) for each in responses]


def helper_pid(shop: pyserve.DeploymentHandle[Any]) -> int:
    return int(shop.helper_pid.remote().result(timeout_s=TIMEOUT_S))


def test_all_replicas_share_one_object_that_is_called_by_one_at_a_time(
    shop: pyserve.DeploymentHandle[Any],
) -> None:
    found = add(shop, 60)
    assert list(range(101, 161)) == sorted(value for value, _ in found)
    assert 2 == len({replica for _, replica in found})


def test_one_that_dies_is_made_anew_and_the_same_handles_reach_it(
    shop: pyserve.DeploymentHandle[Any],
) -> None:
    add(shop, 3)
    former = helper_pid(shop)
    os.kill(former, signal.SIGKILL)
    wait_until(lambda: not psutil.pid_exists(former), TIMEOUT_S)
    # Calls wait for the new one, whose state is that of its constructor.
    assert [101] == [value for value, _ in add(shop, 1)]
    assert former != helper_pid(shop)


def test_a_new_version_of_the_deployment_keeps_it(
    session: Session, shop: pyserve.DeploymentHandle[Any]
) -> None:
    def redeploy(num_cpus: float) -> list[tuple[int, str]]:
        """Deploy as this process finds the code, which is elsewhere than for the command."""
        packed = pack(
            Shop.options(resources={"num_cpus": num_cpus}).bind(), ApplicationName("default")
        )
        deploy(session, packed, route_prefix=None, timeout_s=60.0)
        return add(shop, 10)

    before = {replica for _, replica in redeploy(0.1)}
    after = redeploy(0.2)
    assert list(range(111, 121)) == sorted(value for value, _ in after)
    assert not before & {replica for _, replica in after}


def test_a_name_that_nobody_has_is_a_value_error(shop: pyserve.DeploymentHandle[Any]) -> None:
    text = shop.ask_for.remote("limit").result(timeout_s=TIMEOUT_S)
    assert "no deployment actor 'limit'; it has: counter" in text


def test_it_ends_with_its_application(
    session: Session, shop: pyserve.DeploymentHandle[Any]
) -> None:
    pid = helper_pid(shop)
    session.client.delete(ApplicationName("default"))
    wait_until(lambda: not psutil.pid_exists(pid), TIMEOUT_S)


def test_local_testing_has_it_too() -> None:
    with pyserve.testing.local(app) as handle:
        found = [handle.add.remote(1).result(timeout_s=TIMEOUT_S) for _ in range(5)]
    assert list(range(101, 106)) == [value for value, _ in found]
