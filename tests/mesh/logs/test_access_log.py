"""A line for each call: on the terminal where it is asked for, else in files of replicas."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import grpc
import httpx
import pytest

from pyserve.serializers import codec, join
from tests.mesh.logs.test_request_ids import ask
from tests.support.mesh import RunningMesh, running_mesh
from tests.support.waiting import wait_until

pytestmark = pytest.mark.slow
APP = "tests.mesh.logs.apps:app"
LINE = re.compile(r" pyserve\.access \[(?P<id>[^\]]*)\]: (?P<what>.*) (?P<status>\w+) [\d.]+ ms")


def lines_of(text: str) -> dict[str, str]:
    """Return the status of each call that the log has, by what was asked for."""
    return {found["what"]: found["status"] for found in LINE.finditer(text)}


def in_files(folder: Path) -> str:
    return "".join(file.read_text() for file in sorted(folder.glob("replica_*.log")))


@pytest.mark.parity("G-81")
@pytest.mark.parity("S-57")
def test_with_the_option_each_call_has_one_line() -> None:
    """That of the ingress; of a replica for calls of handles, which no ingress has seen."""
    with running_mesh(APP, "--access-log") as mesh:
        ask(mesh, "secret-text", "r-1")
        expected = {
            "GET /": "200",
            "/default.Child/greet": "OK",
            "/default.Child/greet_in_thread": "OK",
        }
        # Written through: nothing has to come after them.
        wait_until(lambda: lines_of(mesh.output()) == expected)
        assert {"r-1"} == {found["id"] for found in LINE.finditer(mesh.output())}
        access = [line for line in mesh.output().splitlines() if "pyserve.access" in line]
        assert 3 == len(access)
        assert 2 == len([line for line in access if line.startswith("[Child#")])

        assert ask(mesh, "fail", "r-2").is_server_error
        wait_until(lambda: lines_of(mesh.output())["GET /"] == "500")
        httpx.get(f"http://{mesh.address}/a%0Ab c?token=hidden", timeout=30)
        wait_until(lambda: "GET /a%0Ab%20c" in lines_of(mesh.output()))
        access = [line for line in mesh.output().splitlines() if "pyserve.access" in line]
        assert not any("secret-text" in line or "hidden" in line for line in access)
        assert not any("127.0.0.1" in line for line in access)
        # Each of three requests, and two calls of a handle in the first of them.
        assert 5 == len(access)


@pytest.mark.parity("S-58")
@pytest.mark.parity("G-81")
def test_without_it_the_lines_are_in_the_files_of_the_replicas_alone(tmp_path: Path) -> None:
    environment = {"PYSERVE_LOG_DIR": str(tmp_path), "PYSERVE_LOG_ENCODING": "JSON"}
    with running_mesh(APP, environment=environment) as mesh:
        ask(mesh, "one", "r-1")
        wait_until(lambda: "pyserve.access" in in_files(tmp_path))
        assert "pyserve.access" not in mesh.output()
        wait_until(lambda: "shop one" in mesh.output())
    found = [json.loads(line) for line in in_files(tmp_path).splitlines()]
    calls = {each["route"]: each for each in found if each["name"] == "pyserve.access"}
    assert {"GET /", "/default.Child/greet", "/default.Child/greet_in_thread"} == set(calls)
    root = calls["GET /"]
    assert ("r-1", "200", "Shop") == (root["request_id"], root["status"], root["deployment"])
    assert root["duration_ms"] >= calls["/default.Child/greet"]["duration_ms"] > 0
    names = {file.name.rpartition("_")[0] for file in tmp_path.glob("replica_*")}
    assert {"replica_default_Child", "replica_default_Shop"} == names
    assert (tmp_path / "controller.log").exists()


@pytest.mark.parity("G-81")
def test_a_deployment_or_the_environment_may_do_without(tmp_path: Path) -> None:
    environment = {"PYSERVE_LOG_DIR": str(tmp_path), "PYSERVE_ACCESS_LOG": "0"}
    with running_mesh(APP, environment=environment) as mesh:
        ask(mesh, "one", "r-1")
        wait_until(lambda: "batch one" in in_files(tmp_path))
    assert "pyserve.access" not in in_files(tmp_path)


@pytest.mark.parity("S-58")
@pytest.mark.parametrize(
    "environment",
    [
        {"PYSERVE_LOG_TO_STDERR": "0"},
        {"RAY_SERVE_LOG_TO_STDERR": "0"},
        {"PYSERVE_THROUGHPUT_OPTIMIZED": "1"},
    ],
    ids=["ours", "of Ray Serve", "the profile"],
)
def test_logs_may_go_to_files_only(environment: Mapping[str, str]) -> None:
    with running_mesh(APP, environment=environment) as mesh:
        ask(mesh, "one", "r-1")
        folder = mesh.home / "logs"
        wait_until(lambda: "GET /" in lines_of(in_files(folder)))
        assert "batch one" in in_files(folder)
        wait_until(lambda: "constructed" in (folder / "controller.log").read_text())
        told = mesh.output()
    assert 1 == told.count(f"logs go to {mesh.home}/logs")
    assert "is ready at" in told
    assert "constructed" not in told
    assert "one" not in told


@pytest.mark.parity("S-58")
def test_what_is_set_by_itself_wins_over_the_profile() -> None:
    environment = {"PYSERVE_THROUGHPUT_OPTIMIZED": "1", "PYSERVE_LOG_TO_STDERR": "1"}
    with running_mesh(APP, environment=environment) as mesh:
        ask(mesh, "one", "r-1")
        wait_until(lambda: "batch one" in mesh.output())
        assert not (mesh.home / "logs").exists()


@pytest.mark.parity("S-58")
def test_files_are_begun_anew_when_they_are_full(tmp_path: Path) -> None:
    environment = {
        "PYSERVE_LOG_DIR": str(tmp_path),
        "PYSERVE_LOG_ROTATION_BYTES": "4096",
        "PYSERVE_LOG_ROTATION_COUNT": "2",
        # Whose lines may be written many at once.
        "PYSERVE_REQUEST_PATH_LOG_BUFFER_SIZE": "7",
    }
    with running_mesh(APP, environment=environment) as mesh:
        ask_often(mesh, 60)
        wait_until(lambda: "n59" in in_files(tmp_path))
    for name in ("Child", "Shop"):
        files = sorted(tmp_path.glob(f"replica_default_{name}_*"))
        assert 3 == len(files)
        assert all(file.stat().st_size <= 4096 for file in files)


def ask_often(mesh: RunningMesh, count: int) -> None:
    with httpx.Client(base_url=f"http://{mesh.address}", timeout=30) as client:
        for number in range(count):
            client.get("/", params={"text": f"n{number}"}).raise_for_status()


def of_ingress(text: str) -> dict[str, dict[str, str]]:
    """Return what the ingress has written of each call, by what was asked for."""
    # Those of replicas have their name before them on a terminal, and files of their own.
    lines = [line for line in text.splitlines() if line.startswith("I ")]
    found = [LINE.search(line) for line in lines]
    return {each["what"]: {**each.groupdict(), "line": each.string} for each in found if each}


@pytest.mark.parity("G-81")
def test_the_ingress_writes_a_line_for_each_call_with_the_replica_and_the_same_id() -> None:
    with running_mesh(APP, "--access-log") as mesh:
        ask(mesh, "secret-text", "r-1")
        wait_until(lambda: "GET /" in of_ingress(mesh.output()))
        root = of_ingress(mesh.output())["GET /"]
        assert ("r-1", "200") == (root["id"], root["status"])
        assert ", by Shop#" in root["line"]
        assert "secret-text" not in root["line"]
        assert "127.0.0.1" not in root["line"]

        # One that no client has named has the same name everywhere.
        with grpc.insecure_channel(mesh.address) as channel:
            call: Any = channel.unary_unary("/default.Child/greet")
            message = join(codec("proto").encode_call(("two",), {}))
            call(message, timeout=30)
        wait_until(lambda: "/default.Child/greet" in of_ingress(mesh.output()))
        told = of_ingress(mesh.output())["/default.Child/greet"]["id"]
        assert told
        # The replica's own line comes by way of its launcher.
        wait_until(lambda: f"shop [{told}]: child" in mesh.output())
        assert 1 == mesh.output().count(f"pyserve.access [{told}]")


@pytest.mark.parity("G-81")
def test_an_ingress_writes_its_lines_to_its_file(tmp_path: Path) -> None:
    environment = {"PYSERVE_LOG_DIR": str(tmp_path), "PYSERVE_LOG_CLIENT_ADDRESS": "1"}
    file = tmp_path / "ingress.log"
    with running_mesh(APP, environment=environment) as mesh:
        ask(mesh, "one", "r-1")
        wait_until(lambda: "GET /" in of_ingress(file.read_text()))
        assert ", from ipv4:127.0.0.1:" in of_ingress(file.read_text())["GET /"]["line"]
        ask(mesh, "two", "r-2")
        assert {} == of_ingress(mesh.output())
    # The last one too, whenever the end came.
    assert "r-2" == of_ingress(file.read_text())["GET /"]["id"]
