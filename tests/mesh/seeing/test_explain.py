"""``pyserve explain`` names where the time went, in cases where that is known."""

from __future__ import annotations

import json
import os
import re
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from tests.mesh.commands import pyserve
from tests.mesh.metrics.scraping import scrape, scraped_until
from tests.mesh.metrics.test_nodes import admin_of
from tests.mesh.seeing.staged import CHILD_S, HELD_S, LOAD_S, SLOW_S, WINDOW_S
from tests.mesh.start.processes import status_of
from tests.support.mesh import RunningMesh, running_mesh
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]

_TIMEOUT_S = 30.0
_STAGES = ("narrow", "uneven", "batched", "multiplexed", "parent", "blocking")
_ASK = {"x-pyserve-explain": "1"}


class Stage:
    """A mesh with all the cases.

    Args:
        mesh: As it runs.
    """

    def __init__(self, mesh: RunningMesh) -> None:
        self._environment = {**os.environ, "PYSERVE_HOME": str(mesh.home)}
        self._url = f"http://{mesh.address}"

    def call(self, path: str, request_id: str, **headers: str) -> httpx.Response:
        return httpx.get(
            f"{self._url}/{path}",
            headers={"x-request-id": request_id, **headers},
            timeout=_TIMEOUT_S,
            trust_env=False,
        )

    def explain(self, request_id: str) -> list[str]:
        """Return what the command prints, line by line."""
        done = pyserve("explain", request_id, environment=self._environment)
        assert 0 == done.returncode, done.stderr
        return done.stdout.splitlines()

    def listed(self) -> list[str]:
        """Return what the command prints without an id, line by line."""
        done = pyserve("explain", environment=self._environment)
        assert 0 == done.returncode, done.stderr
        return done.stdout.splitlines()

    def as_json(self, request_id: str) -> dict[str, Any]:
        done = pyserve("explain", request_id, "--json", environment=self._environment)
        found: dict[str, Any] = json.loads(done.stdout)
        return found

    def check(self, cause: str, request_id: str, least_s: float) -> str:
        """Expect a cause, which begins with this, to have most of the call's time."""
        first = self.explain(request_id)[0]
        found = re.fullmatch(r"([\d.]+) (s|ms) of [\d.]+ m?s \((\d+)%\): (.*)", first)
        assert found is not None, first
        time, unit, share, words = found.groups()
        assert words.startswith(cause), first
        assert float(time) * (1 if unit == "s" else 0.001) >= 0.9 * least_s, first
        assert int(share) > 50, first
        return words

    def status(self) -> dict[str, Any]:
        done = pyserve("status", "--json", environment=self._environment)
        found: dict[str, Any] = json.loads(done.stdout)
        return found

    def admin(self) -> str:
        """Return where metrics are."""
        return admin_of(self._environment)

    def running(self) -> int:
        """Count the applications that run."""
        applications = self.status()["applications"].values()
        return sum(each["status"] == "RUNNING" for each in applications)

    def in_flight(self) -> int:
        """Count the calls that replicas have."""
        # Without a process, which might start too late.
        counts = status_of(self._environment)["ingress"]["in_flight_of_replica"]
        return sum(counts.values())

    def refusal(self, request_id: str) -> str:
        """Return why the command explains nothing."""
        done = pyserve("explain", request_id, environment=self._environment)
        assert (1, "") == (done.returncode, done.stdout)
        return done.stderr


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    applications = [
        {
            "name": name,
            "route_prefix": f"/{name}",
            "import_path": f"tests.mesh.seeing.staged:{name}",
        }
        for name in _STAGES
    ]
    file = tmp_path_factory.mktemp("stages") / "stages.yaml"
    file.write_text(json.dumps({"applications": applications}))  # JSON is YAML.
    with running_mesh(str(file), environment={"PYSERVE_METRICS_PORT": "0"}) as mesh:
        found = Stage(mesh)
        wait_until(lambda: found.running() == len(_STAGES), 60, "all applications run")
        yield found


@pytest.mark.long
def test_a_call_that_was_parked(stage: Stage):
    with ThreadPoolExecutor() as pool:
        first = pool.submit(stage.call, "narrow?time_s=4", "first")
        wait_until(lambda: stage.in_flight() == 1, _TIMEOUT_S)
        stage.call("narrow?time_s=0.01", "parked", **_ASK)
        first.result()
    stage.check("waited for a free replica of narrow/Narrow", "parked", 0.1)


@pytest.mark.long
def test_a_replica_that_is_slower_than_its_siblings(stage: Stage):
    def is_slow(number: int) -> bool:
        return stage.call("uneven", f"uneven-{number}", **_ASK).text == "slow"

    with ThreadPoolExecutor(8) as pool:
        slow = [number for number, each in enumerate(pool.map(is_slow, range(160))) if each]
    # The router has learnt to avoid it; each of three gets some calls before it has.
    words = stage.check("ran in Uneven#", f"uneven-{slow[-1]}", SLOW_S)
    assert "as slow as its siblings" in words


def test_a_batch_that_waited_for_its_window(stage: Stage):
    stage.call("batched", "batched", **_ASK)
    words = stage.check("waited for a batch of ", "batched", WINDOW_S)
    assert words.endswith(
        "which left with 1 call because its window had passed (batch_wait_timeout_s)"
    )


def test_a_model_that_had_to_be_loaded(stage: Stage):
    stage.call("multiplexed", "cold", **_ASK, serve_multiplexed_model_id="large")
    words = stage.check("waited for the model large to be loaded by ", "cold", LOAD_S)
    assert "model" in words
    stage.call("multiplexed", "warm", **_ASK, serve_multiplexed_model_id="large")
    assert "loaded" not in "\n".join(stage.explain("warm"))


def test_a_call_of_another_deployment(stage: Stage):
    stage.call("parent", "parent", **_ASK)
    stage.check("called parent/Child.answer", "parent", CHILD_S)


def test_code_that_held_the_event_loop(stage: Stage):
    stage.call("blocking", "blocking", **_ASK)
    words = stage.check("waited for the event loop of Blocking#", "blocking", HELD_S / 2)
    assert re.search(r", which staged\.py:\d+ in __call__ held$", words)


def test_what_is_asked_for_an_explanation_counts_as_no_call(stage: Stage):
    stage.call("parent", "counted", **_ASK)
    names = [
        "pyserve_router_calls_total",
        "pyserve_router_picks_total",
        "pyserve_replica_calls_total",
        "pyserve_replica_ended_calls_total",
    ]
    ended = {"application": "parent", "deployment": "Parent", "code": "2xx"}
    before = scraped_until(stage.admin(), lambda page: page.sum(names[-1], **ended))
    stage.explain("counted")
    after = scrape(stage.admin())
    for name in names:
        assert before.sum(name) == after.sum(name) > 0, name


def test_what_nobody_has_asked_for_names_the_header_unless_it_failed(stage: Stage):
    assert "x-pyserve-explain: 1" in stage.refusal("unheard-of")
    assert 500 == stage.call("narrow?time_s=none", "wrong").status_code
    lines = stage.explain("wrong")
    assert "HTTP 500" in lines[1]
    assert lines[1].endswith("kept because it failed")
    listed = stage.listed()
    assert listed[0].startswith("failed, the newest first (")
    assert any(
        line.startswith("  wrong  ") and line.endswith("  HTTP 500  GET /narrow to narrow/Narrow")
        for line in listed
    ), listed


def test_what_a_called_deployment_raised_is_named(stage: Stage):
    assert 500 == stage.call("parent?raises=1", "raising").status_code
    assert "called parent/Child.answer (it raised ValueError)" in "\n".join(
        stage.explain("raising")
    )


def test_programs_read_json(stage: Stage):
    stage.call("batched", "batched", **_ASK)
    found = stage.as_json("batched")
    assert (1, "batched") == (found["format"], found["request_id"])
    assert found["kept_for"] == "asked"
    assert "batch_wait" == found["cause"]["kind"]
    assert pytest.approx(found["duration_s"], rel=0.01) == sum(
        part["seconds"] for part in found["parts"]
    )
    assert found["routing"]["deployment"] == "batched/Batched"
    node = os.environ.get("PYSERVE_NODE_ID") or socket.gethostname()
    assert [node] == [each["node"] for each in found["attempts"]]
