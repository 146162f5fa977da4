"""Applications that are an ingress without a class, or of one with an empty body."""

from __future__ import annotations

import json
from typing import Any

import pytest

import pyserve
from tests.contract.fastapi.exchange import Asked, ask
from tests.mesh.asgi import stateful
from tests.mesh.asgi.apps import below, built_below, empty
from tests.support.mesh import RunningMesh
from tests.support.waiting import wait_until

pytestmark = pytest.mark.slow


@pytest.mark.parity("G-33")
@pytest.mark.parametrize("name", ["below", "built-below", "empty"])
def test_an_application_without_methods_reaches_what_is_bound(mesh: RunningMesh, name: str) -> None:
    found = {"below": below, "built-below": built_below, "empty": empty}[name]
    pyserve.run(found, name=name, route_prefix=f"/{name}")
    try:
        assert [0, 1, 2] == _get(mesh, f"/{name}/count/3")
    finally:
        pyserve.delete(name)


_STATEFUL = {
    "named": stateful.named,
    "rebound": stateful.rebound,
    "wrapped": stateful.wrapped,
    "of-no-name": stateful.of_no_name,
    "of-a-lambda": stateful.of_a_lambda,
    "of-a-builder": stateful.build({}),
    "of-a-local-class": stateful.build({"local": "yes"}),
}


@pytest.mark.parametrize("name", _STATEFUL)
def test_the_modules_own_application_is_served(mesh: RunningMesh, name: str) -> None:
    """With its lock, with what is mounted in it, and with what its lifespan leaves there."""
    pyserve.run(_STATEFUL[name], name=name, route_prefix=f"/{name}")
    try:
        assert ["loaded", "lock", True, True] == _get(mesh, f"/{name}/state")
        assert {"open": True} == _get(mesh, f"/{name}/pool/")
    finally:
        pyserve.delete(name)


def test_a_route_that_no_import_makes_is_served_from_a_copy(mesh: RunningMesh) -> None:
    pyserve.run(stateful.bind_grown(), name="grown", route_prefix="/grown")
    try:
        assert "late" == _get(mesh, "/grown/late")
        said = "tests.mesh.asgi.stateful:grown, imported in the replica, lacks the route GET /late"
        wait_until(lambda: said in mesh.output(), what=said)
    finally:
        pyserve.delete("grown")


def test_a_class_that_nobody_can_call_is_warned_of(mesh: RunningMesh) -> None:
    @pyserve.deployment
    class Silent:
        pass

    pyserve.run(Silent.bind(), name="silent", route_prefix=None)
    pyserve.delete("silent")
    said = "Silent has neither a generated servicer among its bases (object) nor"
    wait_until(lambda: said in mesh.output(), what=said)


def _get(mesh: RunningMesh, path: str) -> Any:
    answered = ask(mesh.address, Asked("GET", path))
    assert 200 == answered.status, answered.body
    return json.loads(answered.body)
