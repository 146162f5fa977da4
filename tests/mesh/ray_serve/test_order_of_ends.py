"""An application that ends lets its calls finish, also those that have calls to make yet."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import pyserve as serve
from tests.mesh.ray_serve.apps import Model, Returning
from tests.mesh.ray_serve.conftest import Run
from tests.support.waiting import wait_until

_TIMEOUT_S = 30.0


@pytest.mark.slow
@pytest.mark.parity("G-67")
def test_a_call_in_flight_reaches_those_below_while_the_application_is_deleted(
    run_in_mesh: Run, tmp_path: Path
) -> None:
    handle = run_in_mesh(Returning.bind(Model.bind(7)), name="ending")
    begun, release = tmp_path / "begun", tmp_path / "release"
    call = handle.remote(str(begun), str(release))
    wait_until(begun.exists, _TIMEOUT_S)

    with ThreadPoolExecutor(1) as pool:
        deleting = pool.submit(serve.delete, "ending")
        wait_until(lambda: _phases("Returning") == ["STOPPING"], _TIMEOUT_S)
        assert ["RUNNING"] == _phases("Model")
        release.touch()

        assert 7 == call.result(timeout_s=_TIMEOUT_S)
        deleting.result(_TIMEOUT_S)
    assert "ending" not in serve.status().applications


def _phases(deployment: str) -> list[str]:
    return [
        each.state
        for each in serve.status().applications["ending"].deployments[deployment].replicas
    ]
