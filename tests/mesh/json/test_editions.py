"""A service whose ``.proto`` has an edition, at every door."""

from __future__ import annotations

import grpc
import httpx
import pytest
from google.protobuf import json_format

from tests.mesh.json import editions_pb2, editions_pb2_grpc

_PATH = "/editions.v1.Editions/Echo"


@pytest.mark.parametrize("path", [_PATH, "/v1/editions"])
@pytest.mark.parametrize(
    "text",
    [
        "{}",
        '{"explicit": 0, "needs": {"number": 0}, "number": 0}',
        '{"name": "n", "group": {"group": {"name": "a"}}, "prefixed": {"groups": [{}, {}]}}',
        '{"things": {"a": {"packed": [1, 2]}}, "expanded": [3, 4], "closed": "CLOSED_TWO"}',
        '{"any": {"@type": "x/editions.v1.Thing", "group": {"part": {"text": "t"}}}}',
        '{"plain": {"inner": {}, "explicit": 0, "word": "", "name": ""}}',
        '{"[editions.v1.extra]": 5, "[editions.v1.extra_parts]": [{"text": "e"}, {}]}',
    ],
)
def test_json_is_answered_as_protobuf_has_it(editions: httpx.Client, path: str, text: str) -> None:
    answer = editions.post(path, content=text, headers={"content-type": "application/json"})
    assert answer.status_code == 200, answer.text
    expected = json_format.Parse(text, editions_pb2.Thing())
    assert answer.json() == json_format.MessageToDict(expected)


def test_defaults_of_fields_without_presence_are_left_out(editions: httpx.Client) -> None:
    answer = editions.post(_PATH, json={"implicit": 0, "part": {"text": ""}, "name": ""})
    assert answer.json() == {"part": {}, "name": ""}


def test_paths_lead_to_its_methods(editions: httpx.Client) -> None:
    answer = editions.get("/v1/editions/n?explicit=0")
    assert (answer.status_code, answer.json()) == (200, {"name": "n", "explicit": 0})


def test_the_binary_form_goes_through_grpc_and_connect(editions: httpx.Client) -> None:
    sent = editions_pb2.Thing(explicit=0, group=editions_pb2.Thing(name="g"))
    headers = {"content-type": "application/proto", "connect-protocol-version": "1"}
    answer = editions.post(_PATH, content=sent.SerializeToString(), headers=headers)
    assert editions_pb2.Thing.FromString(answer.content) == sent
    with grpc.insecure_channel(f"{editions.base_url.host}:{editions.base_url.port}") as channel:
        assert editions_pb2_grpc.EditionsStub(channel).Echo(sent, timeout=30) == sent
