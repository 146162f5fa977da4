"""One line explains an import that fails since installed packages do not fit together."""

from __future__ import annotations

import contextlib
import importlib
import importlib.metadata
import io
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import pyserve
from pyserve import installed
from pyserve.cli import commands
from pyserve.errors import UnfitPackages

_GOOD: dict[str, tuple[str, list[str]]] = {
    "pyserve-mesh": ("1.0.0", ["protobuf>=6.31.1", "health (>=1.74)", "ray>=2; extra == 'ray'"]),
    "health": ("1.85.1", ["protobuf<8.0.0,>=7.35.1", "grpcio>=1.85.1"]),
    "grpcio": ("1.85.3", ["typing-extensions~=4.12"]),
    "protobuf": ("7.36.2", []),
    "typing-extensions": ("4.13", ["pyserve-mesh"]),
}


def _install(monkeypatch: pytest.MonkeyPatch, **versions: str) -> None:
    def distribution(name: str) -> Any:
        if name not in _GOOD or versions.get(name) == "":
            raise importlib.metadata.PackageNotFoundError(name)
        version, requires = _GOOD[name]
        return SimpleNamespace(version=versions.get(name, version), requires=requires)

    monkeypatch.setattr(importlib.metadata, "distribution", distribution)


@pytest.mark.parametrize(
    ("versions", "expected"),
    [
        ({}, []),
        ({"protobuf": "7.35.1"}, []),
        (
            {"protobuf": "7.35.0"},
            ["health 1.85.1 needs protobuf<8.0.0,>=7.35.1, but"],
        ),
        ({"protobuf": "8.0"}, ["health 1.85.1 needs protobuf<8.0.0,>=7.35.1, but protobuf 8.0 is"]),
        (
            {"protobuf": "5.29.6"},
            ["pyserve-mesh 1.0.0 needs protobuf>=6.31.1, but protobuf 5.29.6", "health 1.85.1"],
        ),
        ({"health": "1.73rc1"}, ["pyserve-mesh 1.0.0 needs health>=1.74, but health 1.73rc1 is"]),
        ({"grpcio": ""}, ["health 1.85.1 needs grpcio, which is not installed"]),
    ],
)
def test_what_does_not_fit_is_named(
    monkeypatch: pytest.MonkeyPatch, versions: dict[str, str], expected: list[str]
) -> None:
    _install(monkeypatch, **versions)
    found = list(installed.unmet())
    assert len(expected) == len(found), found
    assert all(text.startswith(begin) for text, begin in zip(found, expected, strict=True)), found


def test_this_environment_fits() -> None:
    """It has no wheel of pyserve, but what it needs."""
    assert [] == [each for each in installed.unmet() if "which is not installed" not in each]


def _break(monkeypatch: pytest.MonkeyPatch, **versions: str) -> None:
    """Have pyserve's modules fail as generated code does."""
    _install(monkeypatch, **versions)

    def fail(_name: str) -> None:
        body = compile("raise ValueError('gencode')", "health_pb2.py", "exec")
        exec(body, {"__name__": "grpc_health.v1.health_pb2"})

    monkeypatch.setattr(importlib, "import_module", fail)


def test_a_command_says_it_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    _break(monkeypatch, protobuf="6.31.1")
    status, told = _run_command()
    assert 1 == status
    (line,) = told.strip().splitlines()
    assert line.startswith("Error: health 1.85.1 needs protobuf<8.0.0,>=7.35.1, but")
    assert "`pip install pyserve-mesh ...`; `pip check`" in line


def test_what_has_another_cause_is_shown_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    _break(monkeypatch)
    with pytest.raises(ValueError, match="gencode"):
        _run_command()


def _run_command() -> tuple[object, str]:
    told = io.StringIO()
    with contextlib.redirect_stderr(told):
        status = commands._run(["status"])
    return status, told.getvalue()


def test_a_program_gets_an_error_that_says_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(vars(pyserve), "run", raising=False)
    _break(monkeypatch, protobuf="6.31.1")
    with pytest.raises(UnfitPackages, match=r"but protobuf 6\.31\.1 is installed") as raised:
        _ = pyserve.run
    assert raised.value.__suppress_context__


def test_what_processes_of_a_mesh_import_is_looked_at_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    installed.check()
    _break(monkeypatch, protobuf="6.31.1")
    with pytest.raises(UnfitPackages, match=r"health 1\.85\.1 needs protobuf"):
        installed.check()


def test_errors_of_programs_themselves_are_theirs(monkeypatch: pytest.MonkeyPatch) -> None:
    _install(monkeypatch, protobuf="5.0")
    with pytest.raises(ZeroDivisionError) as raised:
        exec(compile("1 / 0", "program.py", "exec"), {"__name__": "__main__"})
    # This test's own frame is a function's.
    assert installed.explain(raised.value) is None


_STUBS = """from google.protobuf import runtime_version as _runtime_version
_runtime_version.ValidateProtobufRuntimeVersion(
    _runtime_version.Domain.PUBLIC,
    {version},
    '',
    'far.proto'
)
"""


@pytest.mark.parametrize("version", ["7, 36, 2", "7, 35, 9", "6, 31, 1"])
def test_stubs_of_no_newer_protobuf_fit(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, version: str
) -> None:
    monkeypatch.setattr("google.protobuf.__version__", "7.36.2")
    module = tmp_path / "far_pb2.py"
    module.write_text(_STUBS.format(version=version))
    assert not installed.unfit_stubs(module)


@pytest.mark.parametrize("version", ["7, 36, 3", "7, 37, 0", "8, 0, 0"])
def test_stubs_of_a_newer_protobuf_are_told_with_the_remedy(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, version: str
) -> None:
    monkeypatch.setattr("google.protobuf.__version__", "7.36.2")
    module = tmp_path / "far_pb2.py"
    module.write_text(_STUBS.format(version=version))
    needed = version.replace(", ", ".")
    problem = installed.unfit_stubs(module)
    assert problem.startswith(f"{module} needs protobuf>={needed}, with which it was generated, ")
    assert "but protobuf 7.36.2 is installed" in problem
    assert f"`pip install 'protobuf>={needed}'`" in problem


def test_modules_without_a_version_fit(tmp_path: Path) -> None:
    """Those of protoc before 5.26, and those that are not there."""
    module = tmp_path / "far_pb2.py"
    assert not installed.unfit_stubs(module)
    module.write_text("from google.protobuf import descriptor\n")
    assert not installed.unfit_stubs(module)


def test_only_the_error_of_protobuf_is_explained_by_stubs() -> None:
    assert not installed.explain_stubs(ValueError("gencode 9.0.0 runtime 7.36.2"))
