"""Launchers that are made by name, and the error for a mesh that cannot have one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pyserve.config.launchers import LauncherConfig
from pyserve.errors import MeshError
from pyserve.launch import LastingLocalLauncher, LocalLauncher, ReplicaOrder, Site, make_launcher
from pyserve.launch.engines import ExternalLauncher
from tests.unit.launch.lasting_owner import order


async def nowhere() -> str:
    return "unix:/nowhere"


def site(folder: Path, **changes: Any) -> Site:
    given: dict[str, Any] = {
        "controller": nowhere,
        "token_file": folder / "token",
        "token": b"token",
        "run_dir": folder,
        "home": folder,
    }
    return Site(**given | changes)


async def test_ours_are_made_by_their_names(tmp_path: Path) -> None:
    made = make_launcher(LauncherConfig(), site(tmp_path))
    lasting = make_launcher(LauncherConfig(), site(tmp_path, is_lasting=True))
    external = make_launcher(LauncherConfig(name="external"), site(tmp_path))
    try:
        assert (LocalLauncher, LastingLocalLauncher, ExternalLauncher) == (
            type(made),
            type(lasting),
            type(external),
        )
    finally:
        for each in (made, lasting, external):
            await each.close()


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("externl", "there is no launcher 'externl'; did you mean 'external'?"),
        (
            "slurm",
            "there are process, external, kubernetes, ray; one of your own is written MODULE:",
        ),
        ("pathlib.Path", "the launcher 'pathlib.Path' cannot be made: "),
        ("builtins:id", "the launcher 'builtins:id' lacks capabilities, close, name"),
        ("pathlib:Nothing", "the launcher 'pathlib:Nothing' cannot be made: "),
    ],
)
def test_what_cannot_be_made_says_why(name: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(MeshError) as caught:
        make_launcher(LauncherConfig(name=name), site(tmp_path))

    assert said in str(caught.value)


async def test_one_that_starts_nothing_says_who_does(tmp_path: Path) -> None:
    launcher = ExternalLauncher()

    with pytest.raises(OSError, match=r"'external' has no Echo#abcde: .*pyserve replica"):
        await launcher.start(order(tmp_path, "wait"))

    await launcher.close()
    assert [] == [each async for each in launcher.watch()]


def test_a_site_gives_lines_their_prefix_and_keeps_those_that_stay(tmp_path: Path) -> None:
    shown: list[str] = []
    kept: list[tuple[object, ...]] = []
    wanted = order(tmp_path, "wait")
    here = site(tmp_path, on_line=shown.append, on_output=lambda *said: kept.append(said))

    here.said(wanted, "one")
    here.said(wanted, "10 %\r")

    assert ["[Echo#abcde] one", "[Echo#abcde] 10 %\r"] == shown
    assert [(wanted.key, wanted.replica_id, "one")] == kept


def test_a_replica_finds_its_token_by_its_environment(tmp_path: Path) -> None:
    wanted: ReplicaOrder = order(tmp_path, "wait")

    found = site(tmp_path).environment(wanted)

    assert (str(tmp_path / "token"), str(tmp_path), "wait") == (
        found["PYSERVE_TOKEN_FILE"],
        found["PYSERVE_RUN_DIR"],
        found["SUBJECT"],
    )
    assert "token" not in found.values()
