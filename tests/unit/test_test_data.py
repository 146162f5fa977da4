"""Data of tests that is made from something else in the tree."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Final

from google.protobuf import descriptor_pb2

_ROOT: Final = Path(__file__).resolve().parents[2]
_PROTO: Final = "tests/mesh/doors/things.proto"
_DESCRIPTORS: Final = _ROOT / "router_rs/testdata/things.binpb"


def test_the_descriptors_of_rust_tests_are_fresh(tmp_path: Path) -> None:
    """``things.binpb`` is what protoc makes of ``things.proto``; the message says how."""
    arguments = [
        f"-I{_ROOT}",
        f"-I{sysconfig.get_path('purelib')}",
        "--include_imports",
        f"--descriptor_set_out={tmp_path / 'things.binpb'}",
    ]
    command = [sys.executable, "-m", "grpc_tools.protoc", *arguments, str(_ROOT / _PROTO)]
    subprocess.run(command, check=True, timeout=60)
    fresh = descriptor_pb2.FileDescriptorSet.FromString((tmp_path / "things.binpb").read_bytes())
    committed = descriptor_pb2.FileDescriptorSet.FromString(_DESCRIPTORS.read_bytes())
    assert fresh == committed, (
        f"run python -m grpc_tools.protoc {' '.join(arguments[:3])} "
        f"--descriptor_set_out={_DESCRIPTORS} {_PROTO}"
    )
