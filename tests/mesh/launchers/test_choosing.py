"""Which launcher a mesh has, as users say it, and what happens when it cannot be."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.mesh.commands import pyserve
from tests.mesh.start.processes import END_TIMEOUT_S, command, standing, status_of
from tests.support.leftovers import SESSION_VARIABLE, processes_of
from tests.support.waiting import wait_until

pytestmark = pytest.mark.slow
TARGET = "tests.mesh.launchers.apps:plain"
BROKEN = "tests.mesh.launchers.broken"
FILE = f"""
applications:
  - name: shop
    import_path: {TARGET}
    deployments:
      - name: Plain
        max_replicas_per_node: 1
"""


def left(environment: dict[str, str]) -> list[str]:
    """Return what a mesh has left in its home, its log aside."""
    home = Path(environment["PYSERVE_HOME"])
    names = [each.name for each in home.iterdir()] if home.exists() else []
    return [each for each in names if each == "mesh.json" or each.startswith("mesh-")]


def test_a_mesh_of_replicas_that_others_start_takes_no_deploy(
    mesh_environment: dict[str, str], tmp_path: Path
) -> None:
    file = tmp_path / "app.yaml"
    file.write_text(FILE)
    with standing(mesh_environment, "--launcher", "external", "--address", "127.0.0.1:0"):
        refused = pyserve("deploy", str(file), environment=mesh_environment)
        assert 1 == refused.returncode
        assert "the launcher 'external' of this mesh cannot start 'Plain' of 'shop'" in (
            refused.stderr
        )
        assert "pyserve replica MODULE:ATTRIBUTE" in refused.stderr
        other = pyserve("run", TARGET, "--launcher", "process", environment=mesh_environment)
        assert 1 == other.returncode
        assert "launcher 'process'" in other.stderr
        with command(mesh_environment, "replica", TARGET, "--deployment", "Plain") as replica:
            replica.shows("joins")
            wait_until(
                lambda: "default" in status_of(mesh_environment)["applications"], END_TIMEOUT_S
            )
            assert 0 == replica.end()


def test_a_file_names_its_launcher_and_leaves_nothing_where_that_refuses(
    mesh_environment: dict[str, str], tmp_path: Path
) -> None:
    file = tmp_path / "app.yaml"
    file.write_text(f"launcher: external\n{FILE}")

    done = pyserve("run", str(file), "--address", "127.0.0.1:0", environment=mesh_environment)

    assert 1 == done.returncode
    assert "the launcher 'external'" in done.stderr
    wait_until(lambda: not processes_of(mesh_environment[SESSION_VARIABLE]), END_TIMEOUT_S)
    assert [] == left(mesh_environment)


@pytest.mark.parametrize("way", ["run", "start"])
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["procss"], "there is no launcher 'procss'; did you mean 'process'?"),
        (["nothing.there:Launcher"], "no module 'nothing'"),
        ([f"{BROKEN}:Half"], "lacks capabilities, close, open, room, start, stop, watch"),
        ([f"{BROKEN}:raising"], "cannot be made: one option is wrong"),
        (
            [f"{BROKEN}:Unreachable", "--launcher-option", "at=10.0.0.1"],
            "no engine answers at 10.0.0.1; start one there",
        ),
    ],
    ids=["unknown", "module", "half", "raising", "unreachable"],
)
def test_one_that_cannot_be_is_one_message_and_leaves_nothing(
    way: str, arguments: list[str], said: str, mesh_environment: dict[str, str]
) -> None:
    target = [TARGET] if way == "run" else []

    done = pyserve(
        *(way, *target, "--address", "127.0.0.1:0", "--launcher", *arguments),
        environment=mesh_environment,
    )

    assert 1 == done.returncode, done.stderr
    assert 1 == (done.stdout + done.stderr).count(said), done.stderr
    assert "Traceback" not in done.stderr
    wait_until(lambda: not processes_of(mesh_environment[SESSION_VARIABLE]), END_TIMEOUT_S)
    assert [] == left(mesh_environment)


def test_what_a_launcher_passes_over_is_told_at_the_deploy(
    mesh_environment: dict[str, str], tmp_path: Path
) -> None:
    file = tmp_path / "app.yaml"
    file.write_text(FILE)
    with standing(mesh_environment):
        done = pyserve("deploy", str(file), environment=mesh_environment)

        assert 0 == done.returncode, done.stderr
        assert (
            "warning: deployment 'Plain' of 'shop': max_replicas_per_node has no effect: "
            "all replicas of this mesh run on one machine; see " in done.stderr
        )


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["start", "--launcher-option", "a=1"], "--launcher-option needs --launcher"),
        (["start", "--launcher", "process", "--launcher-option", "a"], "write key=value"),
        (["run", TARGET, "--in-process", "--launcher", "process"], "--launcher has no meaning"),
    ],
)
def test_wrong_usage_is_told_as_such(
    arguments: list[str], said: str, mesh_environment: dict[str, str]
) -> None:
    done = pyserve(*arguments, environment=mesh_environment)

    assert (2, True) == (done.returncode, said in done.stderr)
