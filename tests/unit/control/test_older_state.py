"""The state that a release before has written is taken up as it was.

``older/state-N.sql`` is the dump of a file in schema N: an update of Model goes on, for the Front
that calls it; one replica of each version serves, and others drain or start.
"""

from __future__ import annotations

import contextlib
import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from pyserve.config import DeploymentOptions
from pyserve.control.recovery import Restored, restore
from pyserve.control.state.mesh import Phase
from pyserve.control.state.specs import Run
from pyserve.control.store import SqliteStore
from pyserve.control.store.sqlite import MIGRATIONS
from tests.unit.control.world import APPLICATION, key

_FILES = sorted((Path(__file__).parent / "older").glob("state-*.sql"))
# The time at which it was written, in seconds of the state and of Unix.
NOW, OFFSET = 1000.0, 1_000_000.0
pytestmark = pytest.mark.parity("G-66")


@pytest.fixture(params=_FILES, ids=lambda file: file.stem)
def restored(request: pytest.FixtureRequest, tmp_path: Path) -> Restored:
    path = tmp_path / "mesh.sqlite3"
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.executescript(request.param.read_text())
    with contextlib.closing(SqliteStore(path)) as store:
        return restore(store.load(), now=NOW + 5, clock_offset=OFFSET)


def test_there_is_a_file_of_every_schema() -> None:
    assert [f"state-{number + 1}" for number in range(len(MIGRATIONS))] == [
        file.stem for file in _FILES
    ]


def test_applications_and_deployments_are_what_they_were(restored: Restored) -> None:
    info = restored.applications.infos[APPLICATION]
    assert ("/shop", "Front", Run("r", 7)) == (info.route_prefix, info.ingress_deployment, info.run)
    model = restored.state.deployments[key("Model")]
    assert model.target is not None
    assert model.fallback is not None
    assert ("v4", "v2") == (model.target.id, model.fallback.id)
    assert (False, True) == (model.target.completed, model.fallback.completed)
    assert {"a": 2} == model.target.options.user_config
    assert ("shop.Model",) == model.services
    assert {key("Model")} == restored.reconfiguring.former[APPLICATION].keys()
    assert ({"node-b"}, 2) == (restored.state.cordoned_nodes, restored.deploys)


def test_replicas_are_what_they_were_and_drains_get_a_new_deadline(restored: Restored) -> None:
    replicas = restored.state.replicas
    assert {
        "Front#1": (Phase.STOPPING, "v1", 0),
        "Model#2": (Phase.STOPPING, "v2", 0),
        "Model#3": (Phase.RUNNING, "v2", 1),
        "Front#4": (Phase.RUNNING, "v3", 0),
        "Model#5": (Phase.RUNNING, "v4", 0),
        "Model#6": (Phase.STARTING, "v4", 1),
    } == {name: (each.phase, each.version, each.slot) for name, each in replicas.items()}
    assert {"Model#3", "Front#4", "Model#5"} == restored.awaited.keys()
    assert {name: f"memo of {name}" for name in replicas} == restored.memos
    # That release did not write when they end.
    assert {NOW + 5 + 22.0, NOW + 5 + 7.0} == {
        each.kill_at for each in replicas.values() if each.phase is Phase.STOPPING
    }


def test_its_options_are_read(restored: Restored) -> None:
    for spec in restored.specs.values():
        found = json.loads(DeploymentOptions.from_peer(spec.options_json).to_json())
        assert _without_what_is_new(found, json.loads(spec.options_json)) == (
            json.loads(spec.options_json)
        )


def _without_what_is_new(found: Any, written: Any) -> Any:
    """Return what was found by the names that were written, at every depth."""
    if not isinstance(found, dict) or not isinstance(written, dict):
        return found
    return {name: _without_what_is_new(found.get(name), each) for name, each in written.items()}
