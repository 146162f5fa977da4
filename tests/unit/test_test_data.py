"""Data of tests that is made from something else in the tree."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Final

import pytest
from google.protobuf import descriptor_pb2

_ROOT: Final = Path(__file__).resolve().parents[2]
_PROTOS: Final = ("tests/mesh/doors/things.proto", "tests/mesh/json/editions.proto")


@pytest.mark.parametrize("proto", _PROTOS)
def test_the_descriptors_of_rust_tests_are_fresh(proto: str, tmp_path: Path) -> None:
    """A ``.binpb`` is what protoc makes of the ``.proto``; the message says how."""
    committed_file = _ROOT / "router_rs/testdata" / Path(proto).with_suffix(".binpb").name
    fresh_file = tmp_path / committed_file.name
    arguments = [
        f"-I{_ROOT}",
        f"-I{sysconfig.get_path('purelib')}",
        "--include_imports",
        f"--descriptor_set_out={fresh_file}",
    ]
    command = [sys.executable, "-m", "grpc_tools.protoc", *arguments, str(_ROOT / proto)]
    subprocess.run(command, check=True, timeout=60)
    fresh = descriptor_pb2.FileDescriptorSet.FromString(fresh_file.read_bytes())
    committed = descriptor_pb2.FileDescriptorSet.FromString(committed_file.read_bytes())
    assert fresh == committed, (
        f"run python -m grpc_tools.protoc {' '.join(arguments[:3])} "
        f"--descriptor_set_out={committed_file} {proto}"
    )
