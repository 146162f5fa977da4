"""A HEAD of an answer that is a stream gives its place in the replica back."""

from __future__ import annotations

import httpx
import pytest

import pyserve
from tests.mesh.ingress import apps
from tests.support.mesh import RunningMesh

pytestmark = pytest.mark.slow

_TIMEOUT_S = 20.0
_PLACES = 2


def test_more_heads_than_places_leave_room_for_others(mesh: RunningMesh) -> None:
    endless = apps.Endless.options(max_ongoing_requests=_PLACES)
    pyserve.run(endless.bind(), name="heads", route_prefix="/heads")
    with httpx.Client(base_url=f"http://{mesh.address}", timeout=_TIMEOUT_S) as client:
        for _ in range(_PLACES + 1):
            answer = client.head("/heads")
            assert (200, b"") == (answer.status_code, answer.content)
        with client.stream("GET", "/heads") as answer:
            assert b"more" == next(answer.iter_bytes(4))
    pyserve.delete("heads")
