"""The units of docs/guide/virtual-machines.md are such that systemd takes them."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from pyserve.cli.commands import commands
from tests.docs.page import Block, read_blocks

_PAGE = Path(__file__).resolve().parents[2] / "docs" / "guide" / "virtual-machines.md"
UNITS = {
    block.words[0]: block
    for block in read_blocks(_PAGE.read_text())
    if block.language == "ini" and block.words
}
_PROGRAM = "/opt/pyserve/bin/pyserve"


def test_there_are_units_for_the_mesh_and_for_a_balancer() -> None:
    assert {"pyserve.service", "pyserve-haproxy.service"} <= set(UNITS)


@pytest.mark.external
@pytest.mark.slow
@pytest.mark.parity("S-74")
@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
@pytest.mark.parametrize("name", sorted(UNITS))
def test_systemd_takes_the_unit(name: str, tmp_path: Path) -> None:
    # Its program is not on this machine.
    text = UNITS[name].body.replace(_PROGRAM, shutil.which("true") or "/bin/true")
    (tmp_path / name).write_text(text)

    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", tmp_path / name],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )

    complaints = [line for line in done.stderr.splitlines() if name in line]
    assert (0, []) == (done.returncode, complaints), done.stderr


def _lines(block: Block) -> list[list[str]]:
    return [
        line.partition(f"{_PROGRAM} ")[2].split()
        for line in block.body.splitlines()
        if _PROGRAM in line
    ]


@pytest.mark.parity("S-74")
@pytest.mark.parametrize(
    "words", [words for block in UNITS.values() for words in _lines(block)], ids=" ".join
)
def test_the_commands_of_units_are_there_with_their_options(words: list[str]) -> None:
    name, *arguments = words
    command = commands.get_command(None, name)  # type: ignore[arg-type]  # it looks at the name
    if command is None and name in {"start", "ingress"}:
        pytest.skip(f"pyserve {name} is not in this version")
    assert command is not None
    options = {option for each in command.params for option in each.opts}
    assert set() == {each for each in arguments if each.startswith("--")} - options
