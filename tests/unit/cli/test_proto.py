"""``pyserve proto`` writes stubs that can be imported beside their ``.proto``."""

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from pyserve.cli.commands import CommandFailed
from pyserve.cli.proto import proto, proto_files

PROTO = """
syntax = "proto3";
package greet;
message Name { string name = 1; }
service Greeter { rpc Greet(Name) returns (Name); }
"""


def run(directory: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "pyserve", "proto", *arguments],
        cwd=directory,
        capture_output=True,
        text=True,
        timeout=30,
        env={"PYTHONPATH": str(Path(__file__).parents[3]), "PATH": ""},
        check=False,
    )


@pytest.mark.slow
def test_the_stubs_of_every_proto_below_the_directories_are_written(tmp_path: Path) -> None:
    package = tmp_path / "greetings" / "polite"
    package.mkdir(parents=True)
    (package / "greet.proto").write_text(PROTO)
    result = run(tmp_path, "greetings")
    assert (0, "") == (result.returncode, result.stderr)
    assert "generated the stubs of greetings/polite/greet.proto" in result.stdout
    names = {file.name for file in package.iterdir()}
    assert {"greet_pb2.py", "greet_pb2.pyi", "greet_pb2_grpc.py", "greet_pb2_grpc.pyi"} <= names
    check = "import greetings.polite.greet_pb2_grpc as stubs; stubs.GreeterServicer"
    subprocess.run([sys.executable, "-c", check], cwd=tmp_path, check=True, timeout=30)


@pytest.mark.slow
def test_a_mistake_in_a_proto_is_told_with_its_line(tmp_path: Path) -> None:
    (tmp_path / "bad.proto").write_text('syntax = "proto3";\nmessage { }\n')
    result = run(tmp_path, ".")
    assert 1 == result.returncode
    assert "bad.proto:2" in result.stderr
    assert "Error: 1 of 1 files have no stubs: bad.proto" in result.stderr


def test_without_a_proto_file_it_says_where_it_looked(tmp_path: Path) -> None:
    found = CliRunner().invoke(proto, [str(tmp_path)])
    assert isinstance(found.exception, CommandFailed)
    assert f"no .proto file below {tmp_path}" in str(found.exception)


@pytest.mark.slow
def test_a_file_that_is_refused_keeps_no_other_from_its_stubs(tmp_path: Path) -> None:
    """Files and folders, however they are written; one that lies elsewhere has a remedy."""
    (tmp_path / "bad.proto").write_text('syntax = "proto3";\nmessage { }\n')
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "greet-all.proto").write_text(PROTO.replace("greet;", f"{name};"))
    elsewhere = tmp_path.parent / "elsewhere.proto"
    elsewhere.write_text(PROTO)

    result = run(tmp_path, str(tmp_path / "one"), "two", "bad.proto", str(elsewhere))

    assert 1 == result.returncode
    assert (tmp_path / "one" / "greet_all_pb2_grpc.pyi").exists()
    assert (tmp_path / "two" / "greet_all_pb2.py").exists()
    assert 2 == result.stdout.count("generated the stubs of")
    assert 1 == result.stderr.count("bad.proto:2")
    assert f"2 of 4 files have no stubs: {elsewhere}, bad.proto" in result.stderr
    assert f"give -I {tmp_path.parent}" in result.stderr


def test_what_is_hidden_or_was_installed_is_left_alone(tmp_path: Path) -> None:
    for folder in ("own/deep", ".git/x", "node_modules/x", "env/lib", "own/lib/site-packages/x"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "x.proto").touch()
    (tmp_path / "env" / "pyvenv.cfg").touch()
    (tmp_path / "a.proto").touch()

    assert [tmp_path / "a.proto", tmp_path / "own" / "deep" / "x.proto"] == list(
        proto_files(tmp_path)
    )
    # Who names such a folder means it.
    assert [tmp_path / ".git" / "x" / "x.proto"] == list(proto_files(tmp_path / ".git"))


def test_without_the_generator_it_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "greet.proto").touch()
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: None)
    found = CliRunner().invoke(proto, [str(tmp_path)])
    assert "pip install 'pyserve-mesh[proto]'" in str(found.exception)
