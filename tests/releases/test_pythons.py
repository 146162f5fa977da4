"""``make pythons`` tests what was installed, and says what it did not test."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.pythons import __main__ as pythons
from tests.support.wheels import make_wheel

pytest.importorskip("uv", reason="uv finds the interpreters, and is not here")


def test_the_tree_that_is_tested_has_everything_but_the_package(tmp_path: Path):
    pythons.copy_tree(tmp_path)

    assert not (tmp_path / "pyserve").exists()
    for name in (*pythons.TESTED, "services", "benchmarks", "pyproject.toml", "README.md"):
        assert (tmp_path / name.partition("::")[0]).exists()


def test_interpreters_are_found_by_version():
    assert pythons.find(f"{sys.version_info.major}.{sys.version_info.minor}")
    assert pythons.find("3.99") is None


def test_a_version_that_is_not_here_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert 0 == pythons.main([str(tmp_path / "some.whl"), "3.99"])
    assert "CPython 3.99: SKIPPED, not on this machine\n" == capsys.readouterr().out


@pytest.mark.slow
def test_a_wheel_that_does_not_fit_is_told_and_does_not_pass(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(pythons, "PLACE", tmp_path / "pythons")
    monkeypatch.setattr(pythons, "GROUPS", ())
    wheel = make_wheel(tmp_path, "other", "1.0", "")
    foreign = wheel.rename(wheel.with_name("other-1.0-cp311-abi3-macosx_11_0_arm64.whl"))
    version = f"{sys.version_info.major}.{sys.version_info.minor}"

    assert 1 == pythons.main([str(foreign), version])
    output = capsys.readouterr()
    assert output.out.endswith(f"CPython {version}: cannot install the wheel\n")
    assert "macosx_11_0_arm64" in output.err
