"""``pyserve top`` on a mesh whose calls run meanwhile."""

from __future__ import annotations

import json
import signal
from typing import Any

import httpx
import pytest

from tests.mesh.commands import pyserve
from tests.mesh.seeing.calling import calls
from tests.mesh.seeing.trying import rpc
from tests.mesh.start.processes import address_of, application, command, standing, status_of
from tests.support.waiting import wait_until

pytestmark = pytest.mark.slow


def look(environment: dict[str, str]) -> dict[str, Any]:
    """Look once."""
    done = pyserve("top", "--once", "--json", environment=environment)
    assert 0 == done.returncode, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def makes_three_calls_each(found: dict[str, Any]) -> bool:
    """Tell whether the one deployment is called three times for each call of the other."""
    rates = {each["target"]: each["calls_per_second"] for each in found["deployments"]}
    return bool(pytest.approx(3 * rates["default/Shop"], rel=0.2) == rates["default/Prices"] > 0)


@pytest.mark.long
def test_who_calls_whom_and_how_often(environment: dict[str, str]):
    with standing(environment), application(environment, "tests.mesh.seeing.apps:shop"):
        with calls(f"http://{address_of(environment)}/"):
            # Processes are asked one after the other, so a look at uneven traffic may be askew.
            wait_until(lambda: makes_three_calls_each(look(environment)), 60)
            found = look(environment)
        edges = {(each["from"], each["to"]): each for each in found["edges"]}
        assert {("ingress", "default/Shop"), ("default/Shop", "default/Prices")} == set(edges)
        (ingress,) = found["ingresses"]
        assert "HEALTHY" == ingress["state"]


@pytest.mark.long
def test_without_a_terminal_it_prints_each_look_until_it_is_interrupted(
    environment: dict[str, str],
):
    shop = application(environment, "tests.mesh.seeing.apps:shop")
    with standing(environment), shop, command(environment, "top") as running:
        wait_until(lambda: running.output().count("rates over") >= 2, 30)
        lines = running.output().splitlines()
        assert any(line.startswith("default/Prices  HEALTHY 2/2") for line in lines)
        assert 130 == running.end(signal.SIGINT)


def test_a_mesh_without_an_admin_server_says_how_to_have_one(mesh_environment: dict[str, str]):
    environment = {**mesh_environment, "PYSERVE_METRICS_PORT": "off"}
    with standing(environment):
        done = pyserve("top", "--once", environment=environment)
        assert 1 == done.returncode
        assert "PYSERVE_METRICS_PORT" in done.stderr


def test_no_mesh_is_said_so(mesh_environment: dict[str, str]):
    done = pyserve("top", "--once", environment=mesh_environment)
    assert 1 == done.returncode
    assert "pyserve run" in done.stderr


def test_a_page_of_another_site_learns_nothing_and_calls_nothing(environment: dict[str, str]):
    environment = {**environment, "PYSERVE_TRY_METHODS": "1"}
    with standing(environment), application(environment, "tests.mesh.seeing.apps:echo"):
        (ingress,) = status_of(environment)["ingresses"]
        url = f"http://{ingress['admin']}"
        wanted = rpc("Echo", {})
        mark = {"x-pyserve-page": "1"}
        with httpx.Client(base_url=url, trust_env=False, timeout=20) as client:
            own = client.post("/api/call", json=wanted, headers=mark)
            assert (200, 1) == (own.status_code, own.text.count("event: piece"))
            for headers in ({"host": "evil.example"}, {"origin": "http://evil.example"}):
                for path in ("/api/overview.json", "/api/methods.json", "/api/events"):
                    assert 401 == client.get(path, headers=headers).status_code
                answer = client.post("/api/call", json=wanted, headers={**mark, **headers})
                assert 401 == answer.status_code
            unmarked = client.post("/api/call", json=wanted)
            assert (403, "close") == (unmarked.status_code, unmarked.headers["connection"])
            preflight = client.options("/api/call", headers={"origin": "http://evil.example"})
            assert "access-control-allow-origin" not in preflight.headers
