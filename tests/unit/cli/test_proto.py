"""``pyserve proto`` writes stubs that can be imported beside their ``.proto``."""

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from pyserve.cli.commands import CommandFailed
from pyserve.cli.proto import proto

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
    assert "Error: protoc refused" in result.stderr


def test_without_a_proto_file_it_says_where_it_looked(tmp_path: Path) -> None:
    found = CliRunner().invoke(proto, [str(tmp_path)])
    assert isinstance(found.exception, CommandFailed)
    assert f"no .proto file below {tmp_path}" in str(found.exception)


def test_without_the_generator_it_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: None)
    found = CliRunner().invoke(proto, [str(tmp_path)])
    assert "pip install grpcio-tools" in str(found.exception)
