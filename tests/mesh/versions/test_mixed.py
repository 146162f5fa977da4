"""Processes of two neighbouring releases in one mesh, whichever of them is which."""

from __future__ import annotations

import contextlib
import json
import sqlite3
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest

import pyserve
from pyserve.version import version
from tests.mesh.start.processes import Command, status_of
from tests.mesh.versions.releases import TREE, Release, earlier_release
from tests.support.session import attached
from tests.support.waiting import wait_until

# Half a dozen processes that import, one after the other.
pytestmark = [pytest.mark.slow, pytest.mark.timeout(180), pytest.mark.parity("G-66")]
TIMEOUT_S = 60.0
_CODE = """
import os

import pyserve


@pyserve.deployment
class Peer:
    def where(self) -> str:
        return f"{os.environ['RELEASE']} {os.path.dirname(os.path.dirname(pyserve.__file__))}"

    async def __call__(self, request) -> list[str]:
        other = pyserve.get_app_handle(request.query_params["other"])
        counted = [each async for each in other.options(stream=True).count.remote(3)]
        return [self.where(), await other.where.remote(), f"{counted}"]

    def count(self, limit: int):
        yield from range(limit)


app = Peer.bind()
"""
_FILE = """
applications:
- name: shop
  route_prefix: /shop
  import_path: peers:app
  deployments:
  - {name: Peer, num_replicas: 2, graceful_shutdown_timeout_s: 5.0}
"""


@pytest.fixture(params=["earlier controller", "earlier guest"])
def releases(request: pytest.FixtureRequest) -> tuple[Release, Release]:
    """The release of the controller, and the other one."""
    earlier = earlier_release()
    return (earlier, TREE) if request.param == "earlier controller" else (TREE, earlier)


@pytest.fixture
def code(tmp_path: Path) -> Path:
    (tmp_path / "peers.py").write_text(_CODE)
    (tmp_path / "serve.yaml").write_text(_FILE)
    return tmp_path


@contextlib.contextmanager
def guest(release: Release, environment: dict[str, str], code: Path, name: str) -> Iterator[None]:
    """Have an application whose only replica is of that release."""
    own = ("--application", name, "--route-prefix", f"/{name}")
    with release.running(
        environment, code, "replica", "peers:app", "--deployment", "Peer", *own
    ) as running:
        wait_until(lambda: "HEALTHY" == health(environment, name), TIMEOUT_S, running.output())
        yield


def health(environment: dict[str, str], application: str) -> str:
    found = status_of(environment)["applications"].get(application)
    return "" if found is None else str(found["deployments"]["Peer"]["status"])


def pids(environment: dict[str, str]) -> list[int]:
    found = status_of(environment)["applications"]["shop"]["deployments"]["Peer"]
    return sorted(each["pid"] for each in found["replicas"] if each["state"] == "RUNNING")


def calls_through(address: str, mine: Release, theirs: Release) -> bool:
    """Say whether a request reaches the one, which calls the other by handles."""
    answer = httpx.get(f"http://{address}/{mine}", params={"other": theirs.name}, timeout=TIMEOUT_S)
    expected = [*(f"{each} {each.place}" for each in (mine, theirs)), "[0, 1, 2]"]
    return answer.status_code == 200 and answer.json() == expected


def test_each_end_of_every_protocol_may_be_of_either_release(
    releases: tuple[Release, Release], mesh_environment: dict[str, str], code: Path
) -> None:
    host, other = releases
    base = mesh_environment
    with (
        host.running(base, code, "start", "--address", "127.0.0.1:0") as mesh,
        contextlib.ExitStack() as guests,
    ):
        mesh.shows("the mesh is ready at ")
        for release in releases:
            guests.enter_context(guest(release, base, code, release.name))
        second = guests.enter_context(
            other.running(base, code, "ingress", "--address", "127.0.0.1:0")
        )
        wait_until(lambda: len(addresses(base)) == 2, TIMEOUT_S, second.output())

        for address in addresses(base):
            for mine, theirs in (releases, releases[::-1]):
                wait_until(
                    partial(calls_through, address, mine, theirs),
                    TIMEOUT_S,
                    f"{mine} at {address} calls {theirs}",
                )
        with attached(Path(base["PYSERVE_HOME"])):
            for release in releases:
                handle = pyserve.get_app_handle(release.name)
                told = handle.where.remote().result(timeout_s=TIMEOUT_S)
                assert f"{release} {release.place}" == told
        with other.running(base, code, "status", "--json") as status:
            assert 0 == status.process.wait(TIMEOUT_S), status.output()
            assert {"tree", "earlier"} == told_by(status)["applications"].keys()


def addresses(environment: dict[str, str]) -> list[str]:
    return [str(each) for each in status_of(environment)["addresses"]]


def told_by(status: Command) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(status.output())
    return found


@contextlib.contextmanager
def controller(release: Release, environment: dict[str, str], code: Path) -> Iterator[Command]:
    """Have a controller that keeps its state, without an ingress."""
    own = {**environment, "PYSERVE_INGRESS_LOCATION": "Disabled"}
    with release.running(own, code, "--persistent", module="pyserve.control") as running:
        wait_until(lambda: answers(environment), TIMEOUT_S, running.output())
        yield running


def answers(environment: dict[str, str]) -> bool:
    try:
        status_of(environment)
    except (AssertionError, pyserve.exceptions.PyserveError):
        return False
    return True


def test_a_mesh_goes_on_with_the_controller_of_another_release_and_back(
    releases: tuple[Release, Release], mesh_environment: dict[str, str], code: Path
) -> None:
    first, second = releases
    base, home = mesh_environment, Path(mesh_environment["PYSERVE_HOME"])

    def serves() -> bool:
        return "HEALTHY" == health(base, "shop")

    def where() -> str:
        with attached(home):
            handle = pyserve.get_app_handle("shop")
            return str(handle.where.remote().result(timeout_s=TIMEOUT_S))

    with controller(first, base, code) as running:
        with first.running(base, code, "deploy", "serve.yaml") as deploy:
            assert 0 == deploy.process.wait(TIMEOUT_S), deploy.output()
        before = pids(base)
        assert where().startswith(f"{first} ")
        running.process.kill()
        running.process.wait()

    with controller(second, base, code) as running:
        wait_until(serves, TIMEOUT_S, running.output())
        assert before == pids(base), "what an older or newer controller has started serves on"
        assert where().startswith(f"{first} ")
        (code / "serve.yaml").write_text(_FILE.replace("num_replicas: 2", "num_replicas: 3"))
        with second.running(base, code, "deploy", "serve.yaml") as deploy:
            assert 0 == deploy.process.wait(TIMEOUT_S), deploy.output()
        wait_until(lambda: len(pids(base)) == 3 and serves(), TIMEOUT_S, running.output())
        after = pids(base)
        running.process.kill()
        running.process.wait()

    with controller(first, base, code) as running:
        wait_until(serves, TIMEOUT_S, running.output())
        assert after == pids(base)
        assert where()
        with first.running(base, code, "shutdown") as shutdown:
            assert 0 == shutdown.process.wait(TIMEOUT_S), shutdown.output()
        assert 0 == running.process.wait(TIMEOUT_S)


def test_a_state_in_a_schema_that_is_too_new_is_refused_and_left_as_it_is(
    mesh_environment: dict[str, str], code: Path
) -> None:
    home = Path(mesh_environment["PYSERVE_HOME"])
    file = home / "mesh.sqlite3"
    with controller(TREE, mesh_environment, code) as running:
        assert 0 == running.end()
    with contextlib.closing(sqlite3.connect(file)) as connection:
        connection.execute("PRAGMA user_version = 99")
    before = file.read_bytes()

    own = {**mesh_environment, "PYSERVE_INGRESS_LOCATION": "Disabled"}
    with earlier_release().running(own, code, "--persistent", module="pyserve.control") as refused:
        assert 1 == refused.process.wait(TIMEOUT_S)
        said = [line for line in refused.output().splitlines() if "schema 99" in line]

    assert 1 == len(said), refused.output()
    assert "start the newer release that wrote it" in said[0]
    assert before == file.read_bytes()


_TOO_FAR = """
import pyserve.version

pyserve.version.version = lambda: "0.99.0"  # Before anybody asks.
from pyserve.cli import main

main()
"""


@pytest.mark.parametrize("command", ["replica", "ingress"])
def test_one_that_is_too_far_apart_gets_one_message_and_what_runs_goes_on(
    mesh_environment: dict[str, str], code: Path, command: str
) -> None:
    (code / "too_far.py").write_text(_TOO_FAR)
    arguments = {
        "replica": ("peers:app", "--deployment", "Peer", "--application", "late"),
        "ingress": ("--address", "127.0.0.1:0"),
    }[command]
    with (
        controller(TREE, mesh_environment, code) as running,
        guest(TREE, mesh_environment, code, "here"),
    ):
        with TREE.running(mesh_environment, code, command, *arguments, module="too_far") as refused:
            said = f"the peer runs pyserve 0.99.0, this controller {version()}"
            refused.shows(said, TIMEOUT_S)
            if command == "replica":
                assert 1 == refused.process.wait(TIMEOUT_S)
            assert 1 == refused.output().count(said), refused.output()
            assert "at most one minor release apart" in refused.output()
        assert "HEALTHY" == health(mesh_environment, "here")
        assert "" == health(mesh_environment, "late")
        assert running.process.poll() is None
