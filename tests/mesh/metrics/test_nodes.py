"""Every process of a node is scraped at one port, in each way to run a mesh."""

from __future__ import annotations

import os
import signal
import socket
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from tests.mesh.commands import pyserve
from tests.mesh.metrics.scraping import Page, scrape, scraped_until
from tests.mesh.start.processes import (
    END_TIMEOUT_S,
    address_of,
    application,
    command,
    far_from,
    standing,
    status_of,
)
from tests.support.ports import free_port
from tests.support.waiting import wait_until

pytestmark = pytest.mark.slow
SHOP = "tests.mesh.metrics.apps:shop"
ROLES = "pyserve_info"
WHOLE = {"controller": 1, "ingress": 1, "replica": 3}


@pytest.fixture
def environment(mesh_environment: dict[str, str]) -> dict[str, str]:
    return {**mesh_environment, "PYSERVE_METRICS_PORT": "0"}


def admin_of(environment: dict[str, str]) -> str:
    """Return where the only ingress that is there shows metrics."""
    (admin,) = [each["admin"] for each in status_of(environment)["ingresses"] if each["addresses"]]
    return str(admin)


def roles(page: Page) -> dict[str, int]:
    """Return how many processes there are of each role."""
    return {role: int(page.sum(ROLES, role=role)) for role in page.labels(ROLES, "role")}


def get(address: str) -> int:
    """Call the application; return the status."""
    return httpx.get(f"http://{address}/", timeout=END_TIMEOUT_S, trust_env=False).status_code


def targets(admin: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = httpx.get(
        f"http://{admin}/-/targets", timeout=END_TIMEOUT_S, trust_env=False
    ).json()
    return found


@pytest.mark.parity("S-70")
def test_a_mesh_that_stays_shows_all_its_processes_at_one_port(
    environment: dict[str, str],
) -> None:
    with standing(environment), application(environment, SHOP):
        admin = admin_of(environment)
        assert 200 == get(address_of(environment))
        page = scraped_until(admin, lambda page: WHOLE == roles(page))
        assert [5, 0] == [
            page.sum("pyserve_scrape_processes", state=each) for each in ("answered", "silent")
        ]
        assert {"Prices", "Shop"} == page.labels(ROLES, "deployment")
        for name in ("resident_memory_bytes", "cpu_seconds_total", "threads", "open_fds"):
            found = page.values(f"pyserve_process_{name}")
            assert 5 == len(found), name
            assert all(value > 0 for value in found), name
        (found_target,) = targets(admin)
        assert [admin] == found_target["targets"]


@pytest.mark.parity("S-86")
def test_calls_are_counted_by_whose_they_are_and_where_they_went(
    environment: dict[str, str],
) -> None:
    """The counter of a router grows with the load on it, one by one."""
    with standing(environment), application(environment, SHOP):
        admin, address = admin_of(environment), address_of(environment)
        for _ in range(4):
            assert 200 == get(address)
        ended = "pyserve_ingress_ended_calls_total"
        page = scraped_until(admin, lambda page: 4 == page.sum(ended, by="replica"))
    name = "pyserve_router_calls_total"
    assert 4 == page.sum(name, deployment="Shop", caller="ingress")
    assert 12 == page.sum(name, deployment="Prices", caller="default/Shop")
    assert 12 == page.sum(
        "pyserve_router_ended_attempts_total", deployment="Prices", outcome="completed"
    )
    assert 0 == page.sum("pyserve_router_in_flight_calls")
    assert 3 == len(page.labels("pyserve_router_in_flight_calls", "replica"))
    assert 4 <= page.sum("pyserve_ingress_calls_total")


def test_an_ingress_that_is_started_anew_shows_the_node_again(
    environment: dict[str, str],
) -> None:
    with standing(environment), application(environment, SHOP):
        (before,) = [each for each in status_of(environment)["ingresses"] if each["addresses"]]
        os.kill(before["pid"], signal.SIGKILL)

        def is_replaced() -> bool:
            found = [each for each in status_of(environment)["ingresses"] if each["addresses"]]
            return [before["pid"]] != [each["pid"] for each in found] and 1 == len(found)

        wait_until(is_replaced, END_TIMEOUT_S)
        scraped_until(admin_of(environment), lambda page: WHOLE == roles(page))


def test_a_process_that_stands_still_costs_its_own_lines(environment: dict[str, str]) -> None:
    with standing(environment), application(environment, SHOP):
        admin = admin_of(environment)
        prices = status_of(environment)["applications"]["default"]["deployments"]["Prices"]
        stopped = psutil.Process(prices["replicas"][0]["pid"])
        stopped.suspend()
        try:
            page = scrape(admin)
        finally:
            stopped.resume()
        assert {"controller": 1, "ingress": 1, "replica": 2} == roles(page)
        assert 1 == page.sum("pyserve_scrape_processes", state="silent")


def test_roles_without_an_ingress_show_themselves(environment: dict[str, str]) -> None:
    """As in containers: a controller alone, a replica that has joined by itself."""
    environment = {**environment, "PYSERVE_CONTROLLER": "127.0.0.1:0"}
    with standing(environment, "--no-ingress") as mesh:
        far = far_from(mesh, environment)
        with (
            command(far, "ingress", "--address", "127.0.0.1:0") as ingress,
            command(far, "replica", SHOP, "--deployment", "Prices") as replica,
        ):
            ingress.shows("the ingress listens at")

            def replicas() -> list[dict[str, Any]]:
                found = status_of(environment)["applications"].get("default")
                return [] if found is None else found["deployments"]["Prices"]["replicas"]

            wait_until(lambda: ["RUNNING"] == [r["state"] for r in replicas()], END_TIMEOUT_S)
            pages = {
                each["labels"]["pyserve_role"]: scrape(each["targets"][0])
                for each in targets(admin_of(environment))
            }
            assert {"controller", "ingress", "replica"} == pages.keys()
            for role, page in pages.items():
                assert {role: 1} == roles(page)
            assert {str(replica.process.pid)} == pages["replica"].labels(ROLES, "pid")


def test_a_controller_off_loopback_asks_for_the_key(environment: dict[str, str]) -> None:
    environment = {
        **environment,
        "PYSERVE_CONTROLLER": "127.0.0.1:0",
        "PYSERVE_BIND_HOST": "0.0.0.0",
    }
    with standing(environment, "--no-ingress") as mesh:
        far = far_from(mesh, environment)
        admin = status_of(environment)["admin"]
        port = admin.rpartition(":")[2]
        host = _other_host()
        refused = httpx.get(f"http://{host}:{port}/metrics", timeout=20, trust_env=False)
        assert 401 == refused.status_code
        key = pyserve("viewing-key", environment=far).stdout.strip()
        page = scrape(f"{host}:{port}", {"authorization": f"Bearer {key}"})
        assert {"controller": 1} == roles(page)


def _other_host() -> str:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            # Nothing is sent; it only asks which address this machine has.
            probe.connect(("192.0.2.1", 9))
        except OSError:
            pytest.skip("this machine has no address but loopback")
        host: str = probe.getsockname()[0]
    return host


@pytest.mark.parity("S-70")
@pytest.mark.parametrize("name", ["PYSERVE_METRICS_PORT", "RAY_SERVE_HAPROXY_METRICS_PORT"])
def test_the_port_is_the_one_that_is_named(mesh_environment: dict[str, str], name: str) -> None:
    port = free_port()
    with standing({**mesh_environment, name: str(port)}):
        assert f"127.0.0.1:{port}" == admin_of(mesh_environment)
        assert 1 == roles(scrape(f"127.0.0.1:{port}"))["ingress"]


def test_nothing_is_shown_where_nobody_wants_it(environment: dict[str, str]) -> None:
    environment = {**environment, "PYSERVE_METRICS_PORT": "off"}
    with standing(environment), application(environment, SHOP):
        assert "" == admin_of(environment)
        assert [] == list(Path(environment["PYSERVE_HOME"]).rglob("metrics-*"))
