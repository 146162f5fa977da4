"""What replicas and the controller count, seen at the port of their node."""

from __future__ import annotations

import os
import signal
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from tests.mesh.commands import pyserve
from tests.mesh.metrics.scraping import Page, scrape, scraped_until
from tests.mesh.metrics.test_nodes import admin_of, environment
from tests.mesh.start.processes import (
    END_TIMEOUT_S,
    address_of,
    application,
    standing,
    status_of,
)
from tests.support.waiting import wait_until

__all__ = ["environment"]

pytestmark = pytest.mark.slow
EVERYTHING = "tests.mesh.metrics.apps:everything"
NARROW = "tests.mesh.metrics.apps:narrow"


def get(address: str) -> int:
    return httpx.get(f"http://{address}/", timeout=END_TIMEOUT_S, trust_env=False).status_code


@pytest.mark.parity("S-33")
@pytest.mark.parity("S-35")
@pytest.mark.parity("G-80")
def test_a_request_leaves_its_marks_everywhere(environment: dict[str, str]) -> None:
    with standing(environment), application(environment, EVERYTHING):
        admin = admin_of(environment)
        assert 200 == get(address_of(environment))
        name = "pyserve_ingress_requests_total"
        page = scraped_until(admin, lambda page: 1 == page.sum(name, door="http", status="2xx"))
        of_models = {"application": "default", "deployment": "Models"}
        check_calls(page, of_models)
        check_models_and_batches(page, of_models)
        check_controller(page)
        # What user code counts has the labels of its replica.
        assert 8 == page.sum("shop_words_total", kind="number", **of_models)
        assert [7] == page.values("shop_level", **of_models)
        assert 8 == page.sum("shop_sizes_sum", **of_models)
        assert page.labels("shop_level", "replica") == page.labels(
            "pyserve_models_loaded", "replica"
        )
        passed = {"result": "passed", **of_models}
        name = "pyserve_replica_health_checks_total"
        wait_until(lambda: scrape(admin).sum(name, **passed) >= 2, END_TIMEOUT_S)
        assert 0 == scrape(admin).sum(name, result="failed")


def check_calls(page: Page, of_models: dict[str, str]) -> None:
    """The router and the replica tell the same."""
    path = "/default.Models/doubled"
    assert 8 == page.sum("pyserve_replica_ended_calls_total", method=path, code="OK")
    assert 8 == page.sum("pyserve_replica_call_seconds_count", method=path)
    assert 0 < page.sum("pyserve_replica_call_seconds_sum", method=path)
    assert 12 == page.sum("pyserve_router_ended_calls_total", code="OK", **of_models)
    assert 12 == page.sum("pyserve_router_picks_total", **of_models)
    assert 12 == page.sum("pyserve_router_attempt_seconds_count", **of_models)
    assert 12 == page.sum("pyserve_router_call_seconds_count", outcome="ok", **of_models)
    assert [50] == page.values("pyserve_replica_calls_max", **of_models)
    assert [0] == page.values("pyserve_replica_in_flight_calls", **of_models)
    (started_s,) = page.values("pyserve_replica_initialization_seconds", **of_models)
    assert 0 < started_s < END_TIMEOUT_S


def check_models_and_batches(page: Page, of_models: dict[str, str]) -> None:
    """Two of three models fit, so the fourth request loads one that had to go."""
    assert 4 == page.sum("pyserve_model_requests_total", result="miss", **of_models)
    assert 4 == page.sum("pyserve_model_loads_total", outcome="loaded", **of_models)
    assert 4 == page.sum("pyserve_model_load_seconds_count", **of_models)
    assert 1 == page.sum("pyserve_model_reloads_total", **of_models)
    assert 2 == page.sum("pyserve_model_evictions_total", **of_models)
    assert [2] == page.values("pyserve_models_loaded", **of_models)
    assert 8 == page.sum("pyserve_batch_size_sum", function="Models.doubled")
    left = page.sum("pyserve_batches_total", function="Models.doubled")
    assert 2 <= left <= 8
    assert left == page.sum("pyserve_batch_execution_seconds_count", function="Models.doubled")
    assert left == page.sum("pyserve_batch_wait_seconds_count", function="Models.doubled")


def check_controller(page: Page) -> None:
    """It knows of two deployments, one of which scales."""
    assert [1] == page.values("pyserve_application_status", status="RUNNING")
    assert 2 == page.sum("pyserve_deployment_status", status="HEALTHY")
    assert 2 == page.sum("pyserve_deployment_replicas", state="RUNNING")
    assert 2 == page.sum("pyserve_deployment_replica_healthy")
    assert 2 == page.sum("pyserve_deployment_replica_starts_total")
    assert 2 == page.sum("pyserve_deployment_replica_start_seconds_count")
    assert [1] == page.values("pyserve_autoscaling_target_replicas", deployment="Models")
    assert [2] == page.values("pyserve_autoscaling_max_replicas", deployment="Models")
    assert [1] == page.values("pyserve_ingress_status", status="HEALTHY")
    assert page.sum("pyserve_controller_step_seconds_count") > 0
    assert page.sum("pyserve_controller_watchers") >= 2


@pytest.mark.parity("S-87")
def test_calls_that_queue_take_longer_and_their_replica_does_not(
    environment: dict[str, str],
) -> None:
    with standing(environment), application(environment, NARROW):
        admin, address = admin_of(environment), address_of(environment)
        with ThreadPoolExecutor(20) as threads:
            assert [200] * 20 == list(threads.map(get, [address] * 20))
        name = "pyserve_router_call_seconds_count"
        page = scraped_until(admin, lambda page: 20 == page.sum(name, deployment="Narrow"))
        whole_s = page.sum("pyserve_router_call_seconds_sum", deployment="Narrow")
        parked_s = page.sum("pyserve_router_parked_seconds_sum", deployment="Narrow")
        replica_s = page.sum("pyserve_replica_call_seconds_sum", deployment="Narrow")
    assert 20 == page.sum("pyserve_replica_call_seconds_count", deployment="Narrow")
    # One by one they take 20 x 20 ms in the replica, whatever waits in front of it.
    assert replica_s >= 20 * 0.02
    # How many wait at once is up to how quickly the clients come; the second waits in any case.
    assert parked_s > 0.02
    assert whole_s >= parked_s + replica_s
    assert page.sum("pyserve_router_releases_total", reason="completion") > 0


def test_a_replica_that_dies_is_counted(environment: dict[str, str]) -> None:
    with standing(environment), application(environment, NARROW):
        found = status_of(environment)["applications"]["default"]["deployments"]["Narrow"]
        os.kill(found["replicas"][0]["pid"], signal.SIGKILL)
        admin = admin_of(environment)
        name = "pyserve_deployment_replica_ready_total"
        wait_until(lambda: 2 == scrape(admin).sum(name, deployment="Narrow"), END_TIMEOUT_S)
        page = scrape(admin)
    assert 1 == page.sum("pyserve_deployment_replica_ends_total", how="died")
    assert 2 == page.sum("pyserve_deployment_replica_starts_total", deployment="Narrow")


@pytest.mark.parity("G-80")
def test_requests_of_a_web_application_are_told_by_route(environment: dict[str, str]) -> None:
    with standing(environment), application(environment, "tests.mesh.apps.web:app"):
        admin, address = admin_of(environment), address_of(environment)
        headers = {"x-pyserve-explain": "1", "x-request-id": "of-a-route"}
        with httpx.Client(base_url=f"http://{address}", timeout=END_TIMEOUT_S) as client:
            for path in ("/upper/a", "/upper/b", "/plain", "/nowhere"):
                client.get(path, headers=headers if path == "/upper/b" else {})
        route = {"route": "GET /upper/{text}"}
        name = "pyserve_replica_route_answers_total"
        page = scraped_until(admin, lambda page: 2 == page.sum(name, code="2xx", **route))
        assert 3 == page.sum(name)
        assert 2 == page.sum("pyserve_replica_route_seconds_count", **route)
        assert 0 < page.sum("pyserve_replica_route_seconds_sum", **route)
        found = pyserve("explain", "of-a-route", environment=environment)
        assert "GET /upper/{text} (http) to default/Web" in found.stdout, found.stderr
