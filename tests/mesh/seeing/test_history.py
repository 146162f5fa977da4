"""The history that a mesh keeps: models, changes of numbers of replicas, deaths."""

from __future__ import annotations

import json
import os
import signal
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from tests.mesh.commands import pyserve
from tests.mesh.start.processes import address_of, application, standing, status_of
from tests.support.waiting import wait_until

pytestmark = pytest.mark.slow
_TIMEOUT_S = 30.0


def read(url: str, headers: dict[str, str] | None = None) -> Any:
    answer = httpx.get(url, headers=headers, timeout=_TIMEOUT_S, trust_env=False)
    answer.raise_for_status()
    return answer.json()


def overview(environment: dict[str, str]) -> dict[str, Any]:
    """Return what `pyserve top` has of the only deployment."""
    done = pyserve("top", "--once", "--json", environment=environment)
    assert 0 == done.returncode, done.stderr
    found: dict[str, Any]
    (found,) = json.loads(done.stdout)["deployments"]
    return found


@pytest.mark.parity("S-33")
def test_what_is_loaded_where_and_what_it_cost(environment: dict[str, str]) -> None:
    with standing(environment), application(environment, "tests.mesh.seeing.apps:memory"):
        address = address_of(environment)
        for model in "aabac":  # "b" goes for "c".
            read(f"http://{address}/", {"serve_multiplexed_model_id": model})
        (ingress,) = status_of(environment)["ingresses"]
        found = read(f"http://{ingress['admin']}/api/models.json")
        page = httpx.get(
            f"http://{ingress['admin']}/metrics", timeout=_TIMEOUT_S, trust_env=False
        ).text

    told = {
        each["model"]: (each["hits"], each["misses"], each["loads"]) for each in found["models"]
    }
    assert {"a": (2, 1, 1), "c": (0, 1, 1)} == told
    (cache,) = found["caches"]
    assert ("default/Memory", 2, 2, 2, 3, 3, 1) == tuple(
        cache[name]
        for name in ("target", "models", "models_max", "hits", "misses", "loads", "evictions")
    )
    assert cache["load_mean_s"] > 0
    assert [] == found["others"]
    assert "pyserve_models_loaded{" in page
    assert 'model="' not in page


@pytest.mark.long
@pytest.mark.parity("G-83")
def test_why_there_are_so_many_replicas_and_why_one_is_gone(environment: dict[str, str]) -> None:
    with standing(environment), application(environment, "tests.mesh.seeing.apps:memory"):
        address = address_of(environment)
        with ThreadPoolExecutor(4) as callers:
            slow = [callers.submit(read, f"http://{address}/?for=2") for _ in range(4)]
            wait_until(lambda: overview(environment)["wanted"] == 2, _TIMEOUT_S)
            found = overview(environment)
            for each in slow:
                each.result()
        (decision,) = found["scaling"]["decisions"]
        assert (1, 2) == (decision["before"], decision["after"])
        assert "for each replica" in decision["reason"]

        os.kill(read(f"http://{address}/"), signal.SIGKILL)
        wait_until(lambda: bool(overview(environment)["ended"]), _TIMEOUT_S)
        (ended,) = overview(environment)["ended"]
        assert "SIGKILL" in ended["summary"]
        deployment = status_of(environment)["applications"]["default"]["deployments"]["Memory"]
        assert [ended["replica"]] == [each["replica_id"] for each in deployment["ended"]]
        assert decision["reason"] in [each["reason"] for each in deployment["scaling"]["decisions"]]
