"""Messages of an earlier release keep their meaning, and additions of a newer one do no harm.

``filled.py`` says how the files of ``older`` are made: one for each minor release, when it is out.
"""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import symbol_database, text_format
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from tests.unit.wire.filled import descriptors, filled

_FILES = sorted((Path(__file__).parent / "older").glob("messages-*.jsonl"))
# A field that no message of ours will have: number 9999, a text.
_ADDED = bytes([0xFA, 0xF0, 0x04, 0x03]) + b"new"
pytestmark = pytest.mark.parity("G-66")


def parsed(line: dict[str, str]) -> Message:
    descriptor = symbol_database.Default().pool.FindMessageTypeByName(line["message"])
    message = GetMessageClass(descriptor)()
    message.ParseFromString(base64.b64decode(line["bytes"]))
    return message


def lines(file: Path) -> list[dict[str, str]]:
    list(descriptors())  # So that their modules are imported.
    return [json.loads(line) for line in file.read_text().splitlines()]


@pytest.mark.parametrize("file", _FILES, ids=lambda file: file.stem)
def test_what_an_older_release_wrote_means_the_same(file: Path) -> None:
    found = lines(file)
    assert {"Hello", "Assign", "ApplyRequest", "WatchUpdate", "IngressSettings"} <= {
        line["message"].rpartition(".")[2] for line in found
    }
    for line in found:
        # As text, which has names and values, and shows a field that is unknown by its number.
        told = text_format.MessageToString(parsed(line), as_one_line=True)
        assert line["means"] == told, line["message"]


def test_what_a_newer_release_adds_is_survived() -> None:
    for descriptor in descriptors():
        for message in filled(descriptor):
            written = message.SerializeToString(deterministic=True)
            again: Any = GetMessageClass(descriptor)()
            again.ParseFromString(written + _ADDED)
            assert text_format.MessageToString(message) == text_format.MessageToString(
                again, print_unknown_fields=False
            )
            # Who passes it on passes all of it on.
            assert written + _ADDED == again.SerializeToString(deterministic=True)
