"""Closed enums, message sets, messages of other files, and bodies that are not JSON."""

from __future__ import annotations

import base64
import json
from typing import Any

import httpx
import pytest
from google.protobuf import json_format

from tests.mesh.json import apart_pb2, old_pb2

_PATH = "/old.v1.Old"
_NOT_IMPORTED_BY_THE_SERVICE = apart_pb2


def _echo(client: httpx.Client, text: str) -> httpx.Response:
    headers = {"content-type": "application/json"}
    return client.post(f"{_PATH}/Echo", content=text, headers=headers)


@pytest.mark.parametrize(
    "text",
    [
        '{"closed": 2, "closedList": ["CLOSED_ONE", 2], "packed": [1], "values": {"a": 1}}',
        '{"set": {}}',
        '{"set": {"[old.v1.Item.item]": {"text": "t", "inner": {}}}}',
        '{"any": {"@type": "x/old.v1.Set", "[old.v1.Item.item]": {}}}',
        '{"any": {"@type": "x/apart.v1.Apart", "text": "t"}, "[apart.v1.apart]": {"text": "u"}}',
    ],
)
def test_json_is_answered_as_protobuf_has_it(old: httpx.Client, text: str) -> None:
    expected = json_format.MessageToDict(
        json_format.Parse(text, old_pb2.Thing(), ignore_unknown_fields=True)
    )
    answer = _echo(old, text)
    assert (answer.status_code, answer.json()) == (200, expected)


@pytest.mark.parametrize(
    "text",
    [
        '{"closed": 0}',
        '{"closed": "3"}',
        '{"closedList": [1, 3]}',
        '{"one": 3}',
        '{"any": {"@type": "x/old.v1.Thing", "closed": 9}}',
    ],
)
def test_a_number_that_a_closed_enum_has_not_is_refused(old: httpx.Client, text: str) -> None:
    with pytest.raises(json_format.ParseError):
        json_format.Parse(text, old_pb2.Thing())
    assert _echo(old, text).status_code == 400


@pytest.mark.parametrize(
    ("wire", "expected"),
    [
        (b"\x10\x09", {}),
        (b"\x10\x02\x10\x09", {"closed": "CLOSED_TWO"}),
        (b"\x18\x01\x18\x09\x18\x02", {"closedList": ["CLOSED_ONE", "CLOSED_TWO"]}),
        (b"\x22\x03\x01\x09\x02", {"packed": ["CLOSED_ONE", "CLOSED_TWO"]}),
        (b"\x5a\x01w\x50\x09", {"word": "w"}),
        # Items of a set: in the other order, and one that nobody knows.
        (
            b"\x32\x0a\x0b\x1a\x02\x0a\x00\x10\xf9\xbb\x5e\x0c",
            {"set": {"[old.v1.Item.item]": {"text": ""}}},
        ),
        (b"\x32\x06\x0b\x10\x05\x1a\x00\x0c", {"set": {}}),
    ],
)
def test_what_a_servicer_gives_is_written_as_protobuf_has_it(
    old: httpx.Client, wire: bytes, expected: dict[str, Any]
) -> None:
    assert json_format.MessageToDict(old_pb2.Thing.FromString(wire)) == expected
    answer = old.post(f"{_PATH}/Give", json=base64.b64encode(wire).decode())
    assert (answer.status_code, answer.json()) == (200, expected)


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/?name=root", {"name": "root"}),
        ("/v1/of:old/a%3Ab", {"name": "a:b"}),
        ("/v1/words/w?one=CLOSED_ONE&name=n", {"word": "w", "name": "n"}),
        ("/?labels[a.b]=1&labels%5Bc%5D=2", {"labels": {"a.b": "1", "c": "2"}}),
        ("/?values[k]=VALUE_ONE", {"values": {"k": "VALUE_ONE"}}),
    ],
)
def test_paths_and_queries(old: httpx.Client, path: str, expected: dict[str, Any]) -> None:
    answer = old.get(path)
    assert (answer.status_code, answer.json()) == (200, expected)
    head = old.head(path)
    assert (head.status_code, head.content) == (200, b"")
    assert head.headers["content-type"] == answer.headers["content-type"]


@pytest.mark.parametrize(
    ("query", "told"),
    [("labels.a=1", "write labels[key]=value"), ("items.text=1", "write it in the body")],
)
def test_a_query_that_leads_nowhere_says_so(old: httpx.Client, query: str, told: str) -> None:
    answer = old.get(f"/?{query}")
    assert answer.status_code == 400
    assert told in answer.text


def test_details_of_errors_may_be_of_any_imported_file(old: httpx.Client) -> None:
    (detail,) = old.get("/v1/fail").json()["error"]["details"]
    assert detail == {"@type": "type.googleapis.com/apart.v1.Apart", "text": "why"}
    (detail,) = old.post(f"{_PATH}/Fail", json={}).json()["details"]
    assert detail["debug"] == {"text": "why"}


def test_a_body_that_is_no_json_goes_both_ways(old: httpx.Client) -> None:
    sent = bytes(range(256)) * 300
    answer = old.put("/v1/files/n", content=sent, headers={"content-type": "image/png"})
    assert (answer.headers["content-type"], answer.content) == ("image/png", sent)
    untyped = old.put("/v1/files/n", content=b"")
    assert untyped.headers["content-type"] == "application/octet-stream"
    # With the message's own path it is JSON.
    named = json.dumps({"name": "n", "body": {"contentType": "a/b", "data": "AQI="}})
    headers = {"content-type": "application/json"}
    assert old.post(f"{_PATH}/Store", content=named, headers=headers).json() == json.loads(named)


def test_a_stream_of_bodies_is_one_body(old: httpx.Client) -> None:
    answer = old.get("/v1/files/n")
    assert (answer.headers["content-type"], answer.content) == ("image/png", b"\x89PNG\r\n")


@pytest.mark.parametrize("is_http2", [False, True])
def test_a_stream_of_bodies_that_breaks_does_not_look_whole(
    old: httpx.Client, *, is_http2: bool
) -> None:
    with (
        httpx.Client(base_url=old.base_url, http1=not is_http2, http2=is_http2) as client,
        pytest.raises(httpx.RemoteProtocolError),
    ):
        client.get("/v1/files/broken")


def test_json_by_another_name_is_taken_at_paths(old: httpx.Client) -> None:
    headers = {"content-type": "application/merge-patch+json"}
    answer = old.post("/v1/old", content='{"name": "a"}', headers=headers)
    assert (answer.status_code, answer.json()) == (200, {"name": "a"})
