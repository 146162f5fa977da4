"""``make bench NAME=...``."""

import importlib.util
import subprocess

import pytest

from benchmarks import __main__ as by_name
from benchmarks.__main__ import BENCHMARKS, main
from tests.tidy.rust_rules import MEMBERS


def test_each_name_has_a_program_and_a_crate_that_exist():
    members = {member.rpartition("/")[2] for member in MEMBERS}
    for name, benchmark in BENCHMARKS.items():
        for command in filter(None, (benchmark.command, benchmark.after)):
            if command[0] != "cargo":
                assert importlib.util.find_spec(command[2]), name
        if benchmark.crate:
            assert benchmark.crate.removeprefix("pyserve-") in members, name


def test_a_name_runs_what_it_needs_with_the_arguments_given(monkeypatch: pytest.MonkeyPatch):
    ran: list[list[str]] = []

    def run(command: list[str], **_options: object) -> subprocess.CompletedProcess[str]:
        ran.append([*command])
        return subprocess.CompletedProcess(command, 0)

    monkeypatch.setattr(by_name.subprocess, "run", run)

    assert 0 == main(["batching", "--seconds", "1"])
    assert [
        ["cargo", "build", "--locked", "--release", "-p", "pyserve-loadgen"],
        [*BENCHMARKS["batching"].command, "--seconds", "1"],
        [*(BENCHMARKS["batching"].after or ())],
    ] == ran


def test_names_are_listed_and_an_unknown_one_is_refused(capsys: pytest.CaptureFixture[str]):
    assert 0 == main(["list"])
    assert "make bench NAME=handles" in capsys.readouterr().out
    assert 2 == main(["handels"])
    assert "no benchmark 'handels'; there are: calls, handles" in capsys.readouterr().err
