"""Limits, times and logs, which replicas take on while they serve."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import pyserve as serve
from tests.mesh.ray_serve.apps import Turnstile
from tests.mesh.ray_serve.conftest import Run
from tests.support.waiting import wait_until

TIMEOUT_S = 30


@pytest.fixture
def gate(tmp_path: Path) -> Iterator[Path]:
    """A file whose presence lets held calls end."""
    path = tmp_path / "gate"
    yield path
    path.touch()


def deploy(run: Run, **options: Any) -> serve.DeploymentHandle:
    return run(Turnstile.options(**options).bind())


def replica() -> str:
    (found,) = serve.status().applications["default"].deployments["Turnstile"].replicas
    return found.replica_id


@pytest.mark.parity("G-03")
@pytest.mark.parity("G-22")
def test_the_limit_of_calls_at_once_holds_in_the_replica_and_changes_without_another(
    run_in_mesh: Run, gate: Path
) -> None:
    handle = deploy(run_in_mesh, max_ongoing_requests=2)
    before = replica()
    calls = [handle.hold.remote(str(gate)) for _ in range(5)]

    def most() -> int:
        # The way around the limit: the file beside the gate has a line for each that has begun.
        begun = gate.with_name("begun")
        return len(begun.read_text().splitlines()) if begun.exists() else 0

    wait_until(lambda: most() == 2, TIMEOUT_S)

    deploy(run_in_mesh, max_ongoing_requests=4)
    wait_until(lambda: most() == 4, TIMEOUT_S)

    gate.touch()
    assert 4 == max(each.result(timeout_s=TIMEOUT_S) for each in calls)
    assert before == replica()


@pytest.mark.parity("G-19")
@pytest.mark.parity("G-22")
def test_other_logs_are_taken_on_by_the_replica_that_serves(
    run_in_mesh: Run, tmp_path: Path
) -> None:
    # Lines for calls would come between.
    logs = {
        "logs_dir": str(tmp_path / "logs"),
        "log_level": "WARNING",
        "enable_access_log": False,
    }
    handle = deploy(run_in_mesh, logging_config=logs)
    before = replica()
    handle.log.remote("info", "first").result(timeout_s=TIMEOUT_S)
    handle.log.remote("warning", "second").result(timeout_s=TIMEOUT_S)

    deploy(run_in_mesh, logging_config={**logs, "log_level": "INFO", "encoding": "JSON"})

    def is_told() -> bool:
        handle.log.remote("info", "third").result(timeout_s=TIMEOUT_S)
        return "third" in lines()[-1]

    def lines() -> list[str]:
        (file,) = (tmp_path / "logs").iterdir()
        return file.read_text().splitlines()

    wait_until(is_told, TIMEOUT_S)
    assert before == replica()
    assert lines()[0].endswith("second")
    found = json.loads(lines()[-1])
    assert ("third", "INFO", before) == (found["message"], found["levelname"], found["replica"])


@pytest.mark.parity("G-22")
def test_other_times_are_taken_on_by_the_replica_that_serves(run_in_mesh: Run) -> None:
    handle = deploy(run_in_mesh, health_check_period_s=3600.0)
    before = replica()
    handle.fall_ill.remote().result(timeout_s=TIMEOUT_S)

    deploy(
        run_in_mesh,
        health_check_period_s=0.1,
        graceful_shutdown_timeout_s=1.0,
        request_timeout_s=20.0,
    )

    # Only a check tells, and the first one would have come after an hour.
    wait_until(lambda: before != _serving(), TIMEOUT_S)


@pytest.mark.parity("G-19")
def test_a_folder_that_cannot_be_written_fails_the_start_with_its_name(
    run_in_mesh: Run, tmp_path: Path
) -> None:
    taken = tmp_path / "taken"
    taken.touch()
    with pytest.raises(RuntimeError, match=r"logging_config.logs_dir='.*taken': .* name a folder"):
        deploy(run_in_mesh, logging_config={"logs_dir": str(taken)}, max_constructor_retry_count=1)


def _serving() -> str:
    found = serve.status().applications["default"].deployments["Turnstile"].replicas
    return next((each.replica_id for each in found if each.state == "RUNNING"), "")
