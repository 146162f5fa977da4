"""Lets generated code run with the oldest protobuf and grpcio that pyserve allows.

Generated code asks for versions as new as the generator's own. What it does is the same for older
ones, as ``make dependencies`` shows, so it asks for those of ``pyproject.toml`` instead.
``python -m deploy.release.lower_gencode FOLDER...`` changes the modules below folders in place.
"""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path

_ROOT = Path(__file__).resolve().parents[2]
_FLOOR = re.compile(r"(?P<name>[\w.-]+)>=(?P<version>[\d.]+)")
_PROTOBUF = re.compile(r"(?<=Domain\.PUBLIC,\n)    \d+,\n    \d+,\n    \d+,\n")
_COMMENT = re.compile(r"(?<=^# Protobuf Python Version: )\S+$", re.MULTILINE)
_GRPC = re.compile(r"(?<=^GRPC_GENERATED_VERSION = ')[\d.]+(?='$)", re.MULTILINE)


def floors(extra: str = "") -> dict[str, str]:
    """Return the oldest version of each direct dependency, by its name; or of those of an extra."""
    project = tomllib.loads((_ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    lines = project["optional-dependencies"][extra] if extra else project["dependencies"]
    found = (_FLOOR.match(line) for line in lines)
    return {each["name"]: each["version"] for each in found if each is not None}


def lowered(text: str, protobuf: str, grpcio: str) -> str:
    """Return a generated module that asks for these versions."""
    parts = "".join(f"    {part},\n" for part in protobuf.split("."))
    text = _COMMENT.sub(protobuf, _PROTOBUF.sub(parts, text))
    return _GRPC.sub(grpcio, text)


def main(arguments: Sequence[str] | None = None) -> int:
    """Change the modules below the folders of the command line."""
    folders = sys.argv[1:] if arguments is None else arguments
    oldest = floors()
    for file in [file for each in folders for file in Path(each).rglob("*_pb2*.py")]:
        text = file.read_text(encoding="utf-8")
        file.write_text(lowered(text, oldest["protobuf"], oldest["grpcio"]), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
