"""As many ``def`` endpoints run at once as the replica takes requests."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import pyserve
from tests.contract.fastapi.exchange import Asked, ask
from tests.mesh.asgi.crowds import Crowd, InItsConstructor, InItsLifespan, Plain
from tests.support.mesh import RunningMesh
from tests.support.waiting import wait_until

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def _deleted(mesh: RunningMesh) -> Iterator[None]:
    yield
    pyserve.delete("crowd")


def _deploy(deployment: Any, limit: int) -> None:
    limited = deployment.options(max_ongoing_requests=limit)
    pyserve.run(limited.bind(), name="crowd", route_prefix="/crowd")


def _get(mesh: RunningMesh, path: str) -> Any:
    answered = ask(mesh.address, Asked("GET", f"/crowd{path}"))
    assert 200 == answered.status, answered
    return json.loads(answered.body)


def _meet(mesh: RunningMesh, number: int) -> int:
    """Send so many requests, which end when all are in the endpoint; return its process."""
    with ThreadPoolExecutor(number) as pool:
        (pid,) = set(pool.map(lambda _: _get(mesh, f"/meet/{number}"), range(number)))
    return int(pid)


@pytest.mark.parity("S-11")
@pytest.mark.parity("S-13")
def test_def_endpoints_have_as_many_threads_as_the_limit_also_when_it_changes(
    mesh: RunningMesh,
) -> None:
    _deploy(Crowd, 60)
    before = _meet(mesh, 60)
    _deploy(Crowd, 90)
    wait_until(lambda: _get(mesh, "/threads") == 90)
    assert before == _meet(mesh, 90)
    _deploy(Crowd, 50)
    wait_until(lambda: _get(mesh, "/threads") == 50)
    assert before == _meet(mesh, 50)


def test_a_small_limit_leaves_the_threads_that_there_are_anyway(mesh: RunningMesh) -> None:
    _deploy(Crowd, 2)
    assert 40 == _get(mesh, "/threads")


def test_streams_of_plain_handlers_have_them_too(mesh: RunningMesh) -> None:
    _deploy(Plain, 60)
    assert 60 == _get(mesh, "")


@pytest.mark.parametrize("deployment", [InItsLifespan, InItsConstructor])
def test_an_application_that_chooses_by_itself_keeps_its_number(
    mesh: RunningMesh, deployment: Any
) -> None:
    _deploy(deployment, 60)
    assert 7 == _get(mesh, "/threads")
