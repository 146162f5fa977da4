"""gRPC services as Connect, gRPC-Web, JSON and REST clients see them."""

from __future__ import annotations

import base64
import gzip
import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import grpc
import httpx
import pytest

from tests.mesh.doors import things_pb2, things_pb2_grpc
from tests.support.mesh import RunningMesh, running_mesh

_BUF: Final = str(Path(sys.executable).with_name("buf"))
_TIMEOUT_S: Final = 30.0
_SERVICE: Final = "/things.v1.Things"
_ORIGIN: Final = "https://page.example"
_MESSAGE_BYTES_MAX: Final = 4 << 20


@pytest.fixture(params=["HTTP/1.1", "HTTP/2"])
def client(request: pytest.FixtureRequest, mesh: RunningMesh) -> Iterator[httpx.Client]:
    """Return a client that speaks one version of HTTP."""
    is_http2 = request.param == "HTTP/2"
    with httpx.Client(
        base_url=f"http://{mesh.address}", http1=not is_http2, http2=is_http2, timeout=_TIMEOUT_S
    ) as client:
        yield client


def envelope(message: bytes, flags: int = 0) -> bytes:
    return bytes([flags]) + len(message).to_bytes(4, "big") + message


def envelopes(body: bytes) -> list[tuple[int, bytes]]:
    """Take a body of envelopes apart: flags and messages."""
    found = []
    while body:
        size = int.from_bytes(body[1:5], "big")
        found.append((body[0], body[5 : 5 + size]))
        body = body[5 + size :]
    return found


def buf_curl(
    mesh: RunningMesh, protocol: str, method: str, messages: Sequence[object], *arguments: str
) -> list[object]:
    """Call a method with ``buf curl``; return the answers."""
    done = subprocess.run(
        [
            *(_BUF, "curl", "--protocol", protocol, "--data", "@-", *arguments),
            f"http://{mesh.address}{_SERVICE}/{method}",
        ],
        input="\n".join(map(json.dumps, messages)),
        capture_output=True,
        text=True,
        timeout=_TIMEOUT_S,
        check=False,
    )
    assert not done.returncode, done.stderr
    decoder, text, answers = json.JSONDecoder(), done.stdout.lstrip(), []
    while text:
        answer, end = decoder.raw_decode(text)
        answers.append(answer)
        text = text[end:].lstrip()
    return answers


@pytest.mark.parametrize("protocol", ["connect", "grpcweb", "grpc"])
def test_another_projects_client_calls_every_kind_of_method(
    mesh: RunningMesh, protocol: str
) -> None:
    """``buf curl`` finds the schema by reflection, and speaks three protocols."""
    thing = {"name": "☃", "bigCount": "18446744073709551615", "made": "2024-01-02T03:04:05Z"}
    assert [thing] == buf_curl(mesh, protocol, "Echo", [thing])
    assert [{}, {"smallCount": 1}] == buf_curl(mesh, protocol, "List", [{"count": 2}])
    names = [{"name": "a"}, {"name": "bc"}]
    assert [{"count": 2, "sizeBytes": 3}] == buf_curl(mesh, protocol, "Collect", names)
    assert [{"name": "A"}, {"name": "BC"}] == buf_curl(mesh, protocol, "Chat", names)


def test_json_is_answered_with_json_headers_and_trailers(client: httpx.Client) -> None:
    """A Connect unary call is an ordinary POST; trailing metadata has a prefix."""
    answer = client.post(f"{_SERVICE}/Echo", json={"name": "a", "x": 1}, headers={"x-head": "h"})
    assert (200, {"name": "a"}) == (answer.status_code, answer.json())
    assert "application/json" == answer.headers["content-type"]
    assert ("h", "AAE") == (answer.headers["x-head"], answer.headers["trailer-x-end-bin"])
    assert "x-request-id" in answer.headers


@pytest.mark.parametrize("path", [f"{_SERVICE}/Echo", "/v1/echo"])
def test_unknown_fields_are_ignored_unless_the_client_asks(client: httpx.Client, path: str) -> None:
    """The path and what was meant are in the answer; the service gets none of it."""
    body = {"name": "a", "inner": {"nmae": "b"}}
    assert {"name": "a", "inner": {}} == client.post(path, json=body).json()
    answer = client.post(path, json=body, headers={"x-pyserve-refuse-unknown-fields": "1"})
    assert 400 == answer.status_code
    # REST has its errors in an object of their own.
    error = answer.json().get("error", answer.json())
    assert 'request.inner has no field "nmae", did you mean name?' in error["message"]
    known = {"name": "a", "smallCount": 1}
    answer = client.post(path, json=known, headers={"x-pyserve-refuse-unknown-fields": "1"})
    assert known == answer.json()


def test_an_ingress_may_refuse_unknown_fields_of_everybody() -> None:
    """But of a client that does not want it."""
    environment = {"PYSERVE_INGRESS_REFUSE_UNKNOWN_FIELDS": "1"}
    with running_mesh("tests.mesh.doors.apps:app", environment=environment) as mesh:
        url = f"http://{mesh.address}{_SERVICE}/Echo"
        answer = httpx.post(url, json={"nmae": "b"}, timeout=_TIMEOUT_S)
        assert (400, "invalid_argument") == (answer.status_code, answer.json()["code"])
        headers = {"x-pyserve-refuse-unknown-fields": "0"}
        answer = httpx.post(url, json={"nmae": "b"}, headers=headers, timeout=_TIMEOUT_S)
        assert (200, {}) == (answer.status_code, answer.json())


@pytest.mark.parametrize("path", [f"{_SERVICE}/Echo", "/v1/echo"])
def test_words_that_are_no_json_are_refused_and_never_sent(client: httpx.Client, path: str) -> None:
    """RFC 8259 has no NaN; the JSON of protobuf has it as a text."""
    headers = {"content-type": "application/json"}
    for word in ("NaN", "Infinity", "-Infinity", "nan"):
        for body in (f'{{"weight": {word}}}', f'{{"unknown": [{word}]}}', word):
            answer = client.post(path, content=body, headers=headers)
            assert (400, "malformed" in answer.text) == (answer.status_code, True), body
    extra = {"weight": "NaN", "extra": {"a": 1.5}}
    assert extra == client.post(path, json=extra).json()


def test_protobuf_goes_both_ways_compressed_or_not(client: httpx.Client) -> None:
    """gzip is taken and given where it makes a message smaller."""
    thing = things_pb2.Thing(name="n" * 10_000).SerializeToString()
    for headers, body in [
        ({"accept-encoding": "identity"}, thing),
        ({"content-encoding": "gzip", "accept-encoding": "gzip"}, gzip.compress(thing)),
    ]:
        answer = client.post(
            f"{_SERVICE}/Echo",
            content=body,
            headers={"content-type": "application/proto", **headers},
        )
        assert (200, thing) == (answer.status_code, answer.content)
        assert headers["accept-encoding"] == answer.headers.get("content-encoding", "identity")


def test_methods_without_side_effects_are_called_by_get(client: httpx.Client) -> None:
    """Only those: a browser may send a GET again, or cache its answer."""
    message = base64.urlsafe_b64encode(things_pb2.GetRequest(name="n").SerializeToString())
    for query in (
        {"connect": "v1", "encoding": "json", "message": '{"name": "n"}'},
        {"encoding": "proto", "base64": "1", "message": message.decode().rstrip("=")},
    ):
        answer = client.get(f"{_SERVICE}/Get", params=query)
        assert 200 == answer.status_code, answer.text
        assert b"n" in answer.content
    refused = client.get(f"{_SERVICE}/Echo", params={"encoding": "json", "message": "{}"})
    assert (405, "POST") == (refused.status_code, refused.headers["allow"])


def test_errors_are_json_with_code_text_and_details(client: httpx.Client) -> None:
    """The HTTP status is that of Connect's table, and details have a readable form."""
    answer = client.post(f"{_SERVICE}/Echo", json={"name": "fail"})
    assert 400 == answer.status_code
    detail = {"type": "things.v1.Filter", "value": "CgF0", "debug": {"tagName": "t"}}
    expected = {"code": "failed_precondition", "message": "not now: ☃", "details": [detail]}
    assert expected == answer.json()

    rest = client.post("/v1/echo", json={"name": "fail"})
    assert 400 == rest.status_code
    detail = {"@type": "type.googleapis.com/things.v1.Filter", "tagName": "t"}
    error = {"code": 400, "status": "FAILED_PRECONDITION", "message": "not now: ☃"}
    assert {"error": {**error, "details": [detail]}} == rest.json()


def test_wrong_requests_have_exact_answers(client: httpx.Client) -> None:
    """What reaches no handler is answered by the door, in the protocol's own words."""
    as_json = {"content-type": "application/json"}
    for path, headers, body, status, expected in [
        ("/Echo", as_json, b"{", 400, "malformed body"),
        ("/Echo", as_json, b"", 400, "write {}"),
        ("/Echo", as_json, b'{"name": "\xff"}', 400, "malformed body"),
        ("/Echo", {"content-type": "text/plain"}, b"{}", 415, ""),
        ("/Echo", {**as_json, "connect-timeout-ms": "x"}, b"{}", 400, "connect-timeout-ms"),
        ("/Echo", {**as_json, "connect-protocol-version": "2"}, b"{}", 400, "is 1"),
        ("/Echo", {**as_json, "content-encoding": "br"}, b"{}", 501, "use gzip or identity"),
        ("/Echo", {**as_json, "content-encoding": "gzip"}, b"{}", 400, "decompress"),
        ("/Nothing", {"content-type": "application/proto", "connect-protocol-version": "1"},
         b"", 404, "unimplemented"),
    ]:  # fmt: skip
        answer = client.post(f"{_SERVICE}{path}", headers=headers, content=body)
        assert (status, True) == (answer.status_code, expected in answer.text), answer.text
        if status == 415:
            assert "application/json" in answer.headers["accept-post"]


def test_a_wrong_value_is_told_with_its_path(client: httpx.Client) -> None:
    """As Connect and as Google's interfaces have errors, for bodies, paths and queries."""
    body = {"parts": [{}, {"weight": "x"}], "nmae": "a"}
    expected = (
        'malformed body: request.parts[1].weight: expected a number, got "x"; request has no field '
        '"nmae", did you mean name?'
    )
    answer = client.post(f"{_SERVICE}/Echo", json=body)
    assert (400, expected) == (answer.status_code, answer.json()["message"])
    answer = client.post("/v1/echo", json=body)
    assert (400, expected) == (answer.status_code, answer.json()["error"]["message"])
    answer = client.get("/v1/things?count=many")
    assert 400 == answer.status_code
    assert "request.count: expected a whole number" in answer.json()["error"]["message"]


def test_an_unknown_method_is_told_the_near_one(client: httpx.Client, mesh: RunningMesh) -> None:
    """In every protocol, as far as an error has a text."""
    for path in (f"{_SERVICE}/Ehco", "/things.v1.Thing/Echo", "/Things/Echo"):
        for headers in ({}, {"connect-protocol-version": "1"}):
            answer = client.post(path, json={}, headers=headers)
            assert 404 == answer.status_code
            assert f"did you mean {_SERVICE}/Echo?" in answer.text
        with grpc.insecure_channel(mesh.address) as channel:
            call: grpc.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(path)
            with pytest.raises(grpc.RpcError, match=rf"did you mean {_SERVICE}/Echo\?"):
                call(b"", timeout=_TIMEOUT_S)
    assert "did you mean" not in client.post(f"{_SERVICE}/Delete", json={}).text


def test_a_message_over_the_limit_is_refused(client: httpx.Client) -> None:
    """At the limit it goes through the door, however small it was on its way."""

    def body(size: int) -> bytes:
        return b'{"name":"' + b"a" * (size - 11) + b'"}'

    headers = {"content-type": "application/json", "accept-encoding": "identity"}
    limit = body(_MESSAGE_BYTES_MAX)
    answer = client.post(f"{_SERVICE}/Echo", content=limit, headers=headers)
    assert (200, limit) == (answer.status_code, answer.content)
    answer = client.post(
        f"{_SERVICE}/Echo",
        content=gzip.compress(body(_MESSAGE_BYTES_MAX + 1)),
        headers={**headers, "content-encoding": "gzip"},
    )
    assert (429, "resource_exhausted") == (answer.status_code, answer.json()["code"])
    assert "raise PYSERVE_INGRESS_MAX_MESSAGE_BYTES of the ingress" in answer.json()["message"]


def test_a_stream_goes_half_duplex_over_any_http(client: httpx.Client) -> None:
    """Connect's envelopes, with the status in the last one."""
    headers = {"content-type": "application/connect+json", "connect-protocol-version": "1"}
    body = envelope(b'{"name": "a"}') + envelope(b'{"name": "b"}')
    answer = client.post(f"{_SERVICE}/Chat", content=body, headers=headers)
    expected = [(0, b'{"name":"A"}'), (0, b'{"name":"B"}'), (2, b"{}")]
    assert expected == envelopes(answer.content)

    failing = envelope(b'{"count": 1, "failCode": 10}')
    answer = client.post(f"{_SERVICE}/List", content=failing, headers=headers)
    error = {"error": {"code": "aborted", "message": "enough"}}
    assert [(0, b"{}"), (2, error)] == [
        (flags, json.loads(message) if flags else message)
        for flags, message in envelopes(answer.content)
    ]
    truncated = client.post(f"{_SERVICE}/Chat", content=body[:-1], headers=headers)
    assert "invalid_argument" == json.loads(envelopes(truncated.content)[-1][1])["error"]["code"]


def test_plain_json_reads_a_stream_as_array_or_lines(client: httpx.Client) -> None:
    """So that ``curl`` needs no library."""
    things = [{}, {"smallCount": 1}]
    answer = client.post(f"{_SERVICE}/List", json={"count": 2})
    assert things == answer.json()
    answer = client.get("/v1/things?count=2", headers={"accept": "application/x-ndjson"})
    assert things == [json.loads(line) for line in answer.text.splitlines()]
    failed = client.get("/v1/things?fail_code=5")
    assert (404, "NOT_FOUND") == (failed.status_code, failed.json()["error"]["status"])


def test_paths_of_google_api_http_lead_to_methods(client: httpx.Client) -> None:
    """Fields come from path, query and body; the answer may be one field."""
    answer = client.get("/v1/shelves/1/things/a%20b?filter.tag_name=t&numbers=1&numbers=2")
    expected = {"name": "shelves/1/things/a b", "tags": ["1", "2"], "word": "t"}
    assert expected == answer.json()
    assert ["7"] == client.get("/v1/tags?numbers=7").json()
    answer = client.post("/v1/echo/n:again", json={"isNew": True})
    assert {"name": "n", "isNew": True} == answer.json()
    answer = client.put("/v1/echo/inner", json={"name": "i"})
    assert {"name": "i"} == answer.json()
    wrong = client.get("/v1/things/x?numbers=one")
    assert (400, "INVALID_ARGUMENT") == (wrong.status_code, wrong.json()["error"]["status"])
    other = client.delete("/v1/echo")
    assert (405, "POST") == (other.status_code, other.headers["allow"])
    assert 500 == client.get("/v1/things/nothing").status_code


@pytest.mark.parametrize("is_text", [False, True], ids=["binary", "text"])
def test_grpc_web_has_its_trailers_in_the_body(client: httpx.Client, is_text: bool) -> None:
    """Binary, or base64 in groups that may be padded one by one."""
    content_type = "application/grpc-web-text+proto" if is_text else "application/grpc-web+proto"
    frame = envelope(things_pb2.Thing(name="abc").SerializeToString())
    content = base64.b64encode(frame) if is_text else frame
    answer = client.post(
        f"{_SERVICE}/Echo",
        content=content,
        headers={"content-type": content_type, "origin": _ORIGIN, "x-head": "h"},
    )
    assert (200, content_type) == (answer.status_code, answer.headers["content-type"])
    body = answer.content
    if is_text:
        body = b"".join(base64.b64decode(body[at : at + 4]) for at in range(0, len(body), 4))
    (flags, message), (end_flags, trailers) = envelopes(body)
    assert (0, frame[5:], 0x80) == (flags, message, end_flags)
    assert b"grpc-status: 0\r\n" in trailers
    assert b"x-end-bin: AAE\r\n" in trailers
    assert "*" == answer.headers["access-control-allow-origin"]
    assert "x-head" in answer.headers["access-control-expose-headers"].split(",")


def test_browsers_may_ask_before_they_call(client: httpx.Client) -> None:
    """A preflight is answered at the door, for methods and for paths of their own."""
    for path, allowed in [(f"{_SERVICE}/Echo", "GET, POST"), ("/v1/echo", "POST")]:
        answer = client.options(
            path,
            headers={
                "origin": _ORIGIN,
                "access-control-request-method": "POST",
                "access-control-request-headers": "x-grpc-web,x-mine",
            },
        )
        assert (204, allowed) == (
            answer.status_code,
            answer.headers["access-control-allow-methods"],
        )
        assert "x-grpc-web,x-mine" == answer.headers["access-control-allow-headers"]


def test_large_answers_come_whole(client: httpx.Client) -> None:
    """Far more than any window, in each protocol's way."""
    size_bytes, count = 300_000, 10
    request = {"count": count, "sizeBytes": size_bytes}
    things = client.post(f"{_SERVICE}/List", json=request).json()
    assert [size_bytes] * count == [len(base64.b64decode(thing["data"])) for thing in things]
    message = things_pb2.ListRequest(count=count, size_bytes=size_bytes).SerializeToString()
    answer = client.post(
        f"{_SERVICE}/List",
        content=envelope(message),
        headers={"content-type": "application/grpc-web+proto"},
    )
    *messages, (end_flags, _) = envelopes(answer.content)
    sizes = [len(things_pb2.Thing.FromString(message).data) for _, message in messages]
    assert ([size_bytes] * count, 0x80) == (sizes, end_flags)


def test_a_deadline_ends_the_call(client: httpx.Client) -> None:
    """Connect's own header, in its own unit."""
    answer = client.post(f"{_SERVICE}/Echo", json={}, headers={"connect-timeout-ms": "0"})
    assert (504, "deadline_exceeded") == (answer.status_code, answer.json()["code"])


def test_grpc_itself_is_as_before(mesh: RunningMesh) -> None:
    """The same port, the same methods."""
    with grpc.insecure_channel(mesh.address) as channel:
        thing = things_pb2.Thing(name="a")
        assert thing == things_pb2_grpc.ThingsStub(channel).Echo(thing, timeout=_TIMEOUT_S)


@pytest.mark.parametrize("content_type", ["Application/GRPC", "APPLICATION/gRPC+Proto; a=b"])
def test_letter_case_means_nothing_in_a_content_type(mesh: RunningMesh, content_type: str) -> None:
    """RFC 9110, 8.3.1; over HTTP/2, as gRPC is."""
    sent = envelope(things_pb2.Thing(name="a").SerializeToString())
    headers = {"content-type": content_type, "te": "trailers"}
    with httpx.Client(
        base_url=f"http://{mesh.address}", http1=False, http2=True, timeout=_TIMEOUT_S
    ) as client:
        answer = client.post(f"{_SERVICE}/Echo", content=sent, headers=headers)
    assert (200, sent) == (answer.status_code, answer.content)
    assert answer.headers["content-type"].startswith("application/grpc")
