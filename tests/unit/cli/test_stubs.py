"""``pyserve run`` of an application whose stubs are missing says what makes them, or makes them."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from pyserve.cli.commands import CommandFailed
from pyserve.cli.proto import generate_missing
from pyserve.cli.target import load_application

PROTO = """
syntax = "proto3";
package greet;
message Name { string name = 1; }
service Greeter { rpc Greet(Name) returns (Name); }
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "unstubbed").mkdir()
    (tmp_path / "unstubbed" / "my-greet.proto").write_text(PROTO)
    (tmp_path / "unstubbed_app.py").write_text("from unstubbed import my_greet_pb2_grpc\n")
    return tmp_path


@pytest.mark.parametrize(
    "line", ["import unstubbed.my_greet_pb2", "from unstubbed import my_greet_pb2_grpc"]
)
def test_the_command_is_named(line: str, folder: Path) -> None:
    (folder / "unstubbed_app.py").write_text(f"{line}\n")
    with pytest.raises(CommandFailed) as raised:
        load_application("unstubbed_app:app", {})
    assert "the stubs of unstubbed/my-greet.proto are not generated" in str(raised.value)
    assert "run `pyserve proto unstubbed/my-greet.proto`, or `pyserve run --proto`" in str(
        raised.value
    )
    assert "" == raised.value.traceback


def test_another_module_that_is_missing_is_none_of_stubs(folder: Path) -> None:
    (folder / "unstubbed_app.py").write_text("import unstubbed.other_pb2\n")
    with pytest.raises(CommandFailed) as raised:
        load_application("unstubbed_app:app", {})
    assert "pyserve proto" not in str(raised.value)
    # Frames of the user alone.
    assert 1 == raised.value.traceback.count("  File ")


def test_stubs_of_a_newer_protobuf_are_told_with_the_remedy(folder: Path) -> None:
    """The module is the one that was refused, not the one that imports it."""
    (folder / "newer_pb2.py").write_text(
        "from google.protobuf import runtime_version as _runtime_version\n"
        "_runtime_version.ValidateProtobufRuntimeVersion(\n"
        "    _runtime_version.Domain.PUBLIC,\n    99,\n    1,\n    2,\n    '',\n    'newer'\n)\n"
    )
    (folder / "newer_app.py").write_text("import newer_pb2\n")
    with pytest.raises(CommandFailed) as raised:
        load_application("newer_app:app", {})
    text = str(raised.value)
    assert text.startswith("importing newer_app failed: VersionError: ")
    assert f"{folder / 'newer_pb2.py'} needs protobuf>=99.1.2, with which it was generated" in text
    assert "run `pip install 'protobuf>=99.1.2'`" in text
    assert "" == raised.value.traceback


@pytest.mark.slow
def test_what_is_missing_or_older_than_its_file_is_generated(
    folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    generate_missing()
    assert 1 == capfd.readouterr().out.count("generated")
    subprocess.run([sys.executable, "-c", "import unstubbed_app"], cwd=folder, check=True)
    generate_missing()
    assert "" == capfd.readouterr().out
    later = (folder / "unstubbed" / "my_greet_pb2.py").stat().st_mtime + 10
    os.utime(folder / "unstubbed" / "my-greet.proto", (later, later))
    generate_missing()
    assert 1 == capfd.readouterr().out.count("generated")
