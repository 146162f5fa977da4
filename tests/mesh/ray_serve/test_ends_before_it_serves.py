"""``__del__`` of replicas that are to end while they start."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import pyserve as serve
from tests.mesh.ray_serve import unfinished
from tests.support.waiting import wait_until

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("grace_s", [0.01, 20])
@pytest.mark.parametrize("name", ["AsyncAsync", "AsyncPlain", "PlainAsync", "PlainPlain"])
def test_a_constructor_is_ended_and_the_instance_takes_its_leave(
    mesh: None, tmp_path: Path, name: str, grace_s: float
) -> None:
    noted = _ended_at_its_start(getattr(unfinished, name), tmp_path, grace_s)

    assert ["begun", "left", "__del__"] == noted


def test_one_that_warms_up_is_closed_as_one_that_serves(mesh: None, tmp_path: Path) -> None:
    noted = _ended_at_its_start(unfinished.WarmsUp, tmp_path, 20)

    assert ["begun", "left", "aclose", "__del__"] == noted


def _ended_at_its_start(deployment: Any, folder: Path, grace_s: float) -> list[str]:
    """Deploy, delete as soon as it has begun, and return what it has noted."""
    notes = folder / "notes"
    app = deployment.options(graceful_shutdown_timeout_s=grace_s).bind(str(notes))
    with ThreadPoolExecutor(1) as threads:
        deploy = threads.submit(serve.run, app, name="unfinished", route_prefix=None)
        # Not the file alone: the end may come between its creation and the note in it.
        wait_until(lambda: notes.exists() and notes.read_text())
        serve.delete("unfinished")
        assert isinstance(deploy.exception(timeout=30), serve.DeploymentFailed)
    return notes.read_text().split()
