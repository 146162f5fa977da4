"""Canaries and mirrors between applications under one route."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator

import httpx
import pytest

import pyserve
from pyserve.errors import PyserveError
from tests.mesh.routing.apps import Front, Shadow

pytestmark = pytest.mark.slow


@pytest.fixture
def canary(base_url: str) -> Iterator[None]:
    """The second version, at no route of its own."""
    pyserve.run(Front.bind("v2"), name="canary", route_prefix=None)
    yield
    pyserve.delete("front")
    pyserve.delete("canary")


def deploy(**options: object) -> None:
    pyserve.run(Front.options(**options).bind("v1"), name="front", route_prefix="/front")


def versions(client: httpx.Client, count: int, session: str = "") -> Counter[str]:
    headers = {"x-session-id": session} if session else {}
    answers = (client.post("/front", json="hello", headers=headers) for _ in range(count))
    return Counter(answer.text for answer in answers)


def test_a_canary_gets_its_share_and_its_sessions(client: httpx.Client, canary: None) -> None:
    deploy(traffic={"canary": 0.25})
    counts = versions(client, 400)
    # Six standard deviations of a binomial around 100.
    assert 48 <= counts["v2"] <= 152
    assert 400 == counts.total()
    of_sessions = {f"user-{n}": set(versions(client, 3, f"user-{n}")) for n in range(40)}
    assert {1} == {len(each) for each in of_sessions.values()}
    # A share that grows keeps its users; no deployment is redeployed for that.
    deploy(traffic={"canary": 0.75})
    for session, before in of_sessions.items():
        if before == {"v2"}:
            assert {"v2"} == set(versions(client, 1, session))
    deploy()
    assert {"v1": 20} == versions(client, 20)


def test_what_is_not_deployed_is_refused_by_name(base_url: str, canary: None) -> None:
    deploy()
    with pytest.raises(PyserveError, match=r"traffic of front/Front='v3'.*canary/Front"):
        deploy(traffic={"v3": 0.1})
    with pytest.raises(PyserveError, match=r"mirror of front/Front='front'"):
        deploy(mirror={"front": 0.1})


def test_the_share_of_a_canary_that_is_gone_stays(client: httpx.Client, canary: None) -> None:
    deploy(traffic={"canary": 1.0})
    assert {"v2": 20} == versions(client, 20)
    pyserve.delete("canary")
    assert {"v1": 20} == versions(client, 20)
    pyserve.run(Front.bind("v2"), name="canary", route_prefix=None)


def test_a_mirror_gets_copies_and_nobody_waits_for_it(client: httpx.Client, canary: None) -> None:
    shadow = pyserve.run(Shadow.bind(), name="shadow", route_prefix=None)
    try:
        deploy(mirror={"shadow": 1.0})
        began = time.monotonic()
        for number in range(20):
            assert "v1" == client.post("/front", json=f"copy {number}").text
        # The shadow answers after an hour.
        assert time.monotonic() - began < 30
        copies = shadow.seen.remote(20).result(timeout_s=30)
        assert sorted(f'"copy {number}"' for number in range(20)) == sorted(copies)
    finally:
        pyserve.delete("shadow")
