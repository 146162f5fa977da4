"""From the command line's words to protobuf messages and back."""

import io
import json
from pathlib import Path
from typing import Any

import click
import pytest
from google.protobuf import descriptor_pb2, struct_pb2

from pyserve.cli.reflection import as_json, read_messages
from services.echo import echo_pb2

PERFORM = echo_pb2.PerformRequest.DESCRIPTOR
STREAM = echo_pb2.PerformStreamRequest.DESCRIPTOR
FIELD = descriptor_pb2.FieldDescriptorProto.DESCRIPTOR
FILE = descriptor_pb2.FileDescriptorProto.DESCRIPTOR
STRUCT = struct_pb2.Struct.DESCRIPTOR


def read(kind: Any, *arguments: str) -> list[dict[str, Any]]:
    return [json.loads(as_json(message)) for message in read_messages(kind, arguments)]


@pytest.mark.parametrize(
    ("kind", "arguments", "expected"),
    [
        (PERFORM, [], {}),
        (PERFORM, ["response_bytes=3", "delay_s=0.5"], {"response_bytes": 3, "delay_s": 0.5}),
        (PERFORM, ["describe=true", "raise_text=x=y"], {"describe": True, "raise_text": "x=y"}),
        (PERFORM, ["raise_text=5"], {"raise_text": "5"}),
        (PERFORM, ["payload=hi"], {"payload": "aGk="}),
        (PERFORM, ["status.code=3", "status.message=no"], {"status": {"code": 3, "message": "no"}}),
        (PERFORM, ['status={"code": 3}'], {"status": {"code": 3}}),
        (STREAM, ["messages=2", "each.status.code=1"], None),
        (FIELD, ["type=TYPE_INT32"], {"type": "TYPE_INT32"}),
        (FILE, ["dependency=a", "dependency=b"], {"dependency": ["a", "b"]}),
        (FILE, ['dependency=["a","b"]'], {"dependency": ["a", "b"]}),
        (FILE, ["public_dependency=1", "public_dependency=2"], {"public_dependency": [1, 2]}),
        (STRUCT, ['fields={"a": 1}'], None),
    ],
)
def test_pairs_make_one_message(kind: Any, arguments: list[str], expected: Any) -> None:
    (found,) = read(kind, *arguments)
    if expected is not None:
        assert expected == found


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["respons_bytes=3"], "has no field 'respons_bytes'; its fields: payload (bytes), "),
        (["response_bytes"], "write key=value"),
        (["response_bytes=many"], "does not fit services.echo.PerformRequest"),
        (["response_bytes=-1"], "does not fit"),
        (["delay_s=1", "delay_s=2"], "given twice"),
        (["delay_s.a=1"], "has no fields of its own"),
        (["payload=@/no/such/file"], "/no/such/file cannot be read: No such file"),
        (["@/no/such/file"], "cannot be read"),
        (["@/no/such/file", "delay_s=1"], "not both"),
    ],
)
def test_what_does_not_fit_says_what_would(arguments: list[str], says: str) -> None:
    with pytest.raises(click.UsageError) as raised:
        read(PERFORM, *arguments)
    assert says in str(raised.value)


def test_a_value_may_come_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "payload"
    file.write_bytes(b"\x00\xff")
    assert [{"payload": "AP8="}] == read(PERFORM, f"payload=@{file}")


@pytest.mark.parametrize(
    "text", ['{"delay_s": 1}\n{"delay_s": 2}', '[{"delay_s": 1}, {"delay_s": 2}]']
)
def test_a_file_may_hold_several_messages(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "requests.json"
    file.write_text(text)
    assert [{"delay_s": 1.0}, {"delay_s": 2.0}] == read(PERFORM, f"@{file}")
    monkeypatch.setattr("sys.stdin", io.StringIO(text))
    assert [{"delay_s": 1.0}, {"delay_s": 2.0}] == read(PERFORM, "-")


def test_a_file_that_holds_no_json_says_so(tmp_path: Path) -> None:
    file = tmp_path / "requests.json"
    file.write_text("{nothing")
    with pytest.raises(click.UsageError, match="holds no JSON"):
        read(PERFORM, f"@{file}")
