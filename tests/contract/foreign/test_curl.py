"""curl against the ingress: Connect, gRPC-Web and plain HTTP, over HTTP/1 and HTTP/2."""

from __future__ import annotations

import base64
import json
import select
import subprocess
from collections.abc import Iterator

import pytest

from services.echo import echo_pb2
from tests.contract.foreign import curl as curls
from tests.contract.foreign.curl import Answer, curl
from tests.contract.foreign.meshes import settling_mesh
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.external]

if reason := curls.why_not():
    pytest.skip(reason, allow_module_level=True)

JSON = ("--header", "content-type: application/json")
MIB = 1024 * 1024
_LINE_TIMEOUT_S = 10.0
_TRAILERS_FLAG = 0x80
_END_FLAG = 0x02


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with settling_mesh("tests.contract.foreign.plain:app") as mesh:
        yield f"http://{mesh.address}"


@pytest.fixture(params=["--http1.1", "--http2-prior-knowledge"])
def http(request: pytest.FixtureRequest) -> str:
    """The option for a version of HTTP."""
    if request.param.startswith("--http2") and not curls.speaks_http2():
        pytest.skip("this curl has no HTTP/2")
    option: str = request.param
    return option


def check(answer: Answer, http: str, status: int = 200) -> None:
    """Expect one head, with this status, in the version that was asked for."""
    assert 0 == answer.exit_code, answer
    assert [status] == answer.statuses, answer
    assert ["2" if http.startswith("--http2") else "1.1"] == answer.versions


def b64(payload: bytes) -> str:
    return base64.b64encode(payload).decode()


# --- Connect and gRPC-Web -------------------------------------------------------------------


def test_connect_takes_json(url: str, http: str):
    body = json.dumps({"payload": b64(b"hello")})
    answer = curl(f"{url}/services.echo.Echo/Echo", http, *JSON, "--data", body)
    check(answer, http)
    assert {"payload": b64(b"hello")} == answer.json()
    assert "application/json" == answer.headers["content-type"]


def test_connect_takes_protobuf(url: str, http: str):
    request = echo_pb2.EchoRequest(payload=b"\0hello\xff").SerializeToString()
    proto = ("--header", "content-type: application/proto", "--data-binary", "@-")
    answer = curl(f"{url}/services.echo.Echo/Echo", http, *proto, body=request)
    check(answer, http)
    assert b"\0hello\xff" == echo_pb2.EchoReply.FromString(answer.body).payload


def test_connect_takes_get_where_nothing_changes(url: str, http: str):
    query = {"connect": "v1", "encoding": "json", "message": json.dumps({"payload": b64(b"?&")})}
    encoded = [part for pair in query.items() for part in ("--data-urlencode", "=".join(pair))]
    answer = curl(f"{url}/services.echo.Echo/Echo", http, "--get", *encoded)
    check(answer, http)
    assert {"payload": b64(b"?&")} == answer.json()
    refused = curl(f"{url}/services.echo.Echo/Perform", http, "--get", *encoded)
    check(refused, http, status=405)


def test_connect_says_why_it_failed(url: str, http: str):
    body = json.dumps({"status": {"code": 5, "message": "no such thing: größer"}})
    answer = curl(f"{url}/services.echo.Echo/Perform", http, *JSON, "--data", body)
    check(answer, http, status=404)
    assert {"code": "not_found", "message": "no such thing: größer"} == answer.json()


def test_connect_streams(url: str, http: str):
    request = json.dumps({"messages": 3, "each": {"payload": b64(b"again")}}).encode()
    connect = ("--header", "content-type: application/connect+json", "--data-binary", "@-")
    envelope = b"\0" + len(request).to_bytes(4, "big") + request
    path = f"{url}/services.echo.Echo/PerformStream"
    answer = curl(path, http, *connect, body=envelope)
    check(answer, http)
    *replies, (flag, end) = frames(answer.body)
    assert [(0, {"payload": b64(b"again")})] * 3 == [(f, json.loads(m)) for f, m in replies]
    assert (_END_FLAG, {}) == (flag, json.loads(end))


@pytest.mark.parametrize("text", [False, True], ids=["binary", "text"])
def test_grpc_web_by_hand(url: str, http: str, *, text: bool):
    request = echo_pb2.EchoRequest(payload=b"hello").SerializeToString()
    body = b"\0" + len(request).to_bytes(4, "big") + request
    kind = "application/grpc-web-text" if text else "application/grpc-web+proto"
    options = ("--header", f"content-type: {kind}", "--data-binary", "@-")
    sent = base64.b64encode(body) if text else body
    answer = curl(f"{url}/services.echo.Echo/Echo", http, *options, body=sent)
    check(answer, http)
    received = unpadded(answer.body) if text else answer.body
    (flag, reply), (end_flag, trailers) = frames(received)
    assert (0, b"hello") == (flag, echo_pb2.EchoReply.FromString(reply).payload)
    assert _TRAILERS_FLAG == end_flag
    assert "grpc-status:0" in trailers.decode().replace(" ", "").lower().split("\r\n")


def frames(body: bytes) -> list[tuple[int, bytes]]:
    """Cut a body into its flagged messages."""
    found = []
    while body:
        end = 5 + int.from_bytes(body[1:5], "big")
        found.append((body[0], body[5:end]))
        body = body[end:]
    return found


def unpadded(body: bytes) -> bytes:
    """Decode base64 that was encoded in pieces, each with padding of its own."""
    return b"".join(base64.b64decode(body[i : i + 4]) for i in range(0, len(body), 4))


# --- plain HTTP -----------------------------------------------------------------------------


def test_json_in_and_out(url: str, http: str):
    answer = curl(f"{url}/add", http, *JSON, "--data", "[1, 2, 3]")
    check(answer, http)
    assert {"sum": 6} == answer.json()


def test_the_request_arrives_as_it_was_sent(url: str, http: str):
    options = ("--request", "PATCH", "--header", "X-Mine: größer", "--data-binary", "\1\2\3")
    answer = curl(f"{url}/facts?a=1&b=%2F", http, *options)
    check(answer, http)
    facts = answer.json()
    assert ("PATCH", {"a": "1", "b": "/"}) == (facts["method"], facts["query"])
    assert "größer" == facts["headers"]["x-mine"].encode("latin-1").decode()
    assert ("2" if "http2" in http else "1.1") == facts["version"]
    assert (3, 6) == (facts["body_bytes"], facts["body_sum"])
    assert "yes" == answer.headers["x-facts"]


def test_head_has_no_body(url: str, http: str):
    answer = curl(f"{url}/facts", http, "--head")
    check(answer, http)
    assert int(answer.headers["content-length"]) > 0
    assert 0 == answer.facts["size_download"]


def test_an_offer_of_http2_by_upgrade_is_answered_in_http1(url: str):
    if not curls.speaks_http2():
        pytest.skip("this curl has no HTTP/2")
    answer = curl(f"{url}/add", "--http2", *JSON, "--data", "[4]")
    check(answer, "--http1.1")
    assert {"sum": 4} == answer.json()


def test_http_1_0_is_answered(url: str):
    answer = curl(f"{url}/add", "--http1.0", *JSON, "--data", "[4, 5]")
    assert (0, [200]) == (answer.exit_code, answer.statuses)
    assert {"sum": 9} == answer.json()


def test_a_connection_serves_several_requests(url: str):
    """By HTTP/1.1: curl 7.88 fails at its second request with prior knowledge, on any server."""
    command = ["curl", "--silent", "--http1.1", "--write-out", "%{http_code} %{num_connects}\n"]
    for _ in range(3):
        command += ["--output", "/dev/null", f"{url}/facts"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=30, check=True)
    assert ["200 1", "200 0", "200 0"] == ended.stdout.splitlines()


def test_a_body_of_unknown_length(url: str, http: str):
    options = ["--request", "POST", "--upload-file", "-"]
    answer = curl(f"{url}/facts", http, *options, body=b"\1" * MIB)
    assert (0, 200) == (answer.exit_code, answer.status), answer
    facts = answer.json()
    assert (MIB, MIB) == (facts["body_bytes"], facts["body_sum"])
    assert "content-length" not in facts["headers"]


def test_a_client_that_expects_100_gets_it(url: str):
    # Without it, curl would wait for the whole timeout.
    options = ("--header", "Expect: 100-continue", "--expect100-timeout", str(curls.MAX_TIME_S))
    body = b"\1" * MIB
    answer = curl(f"{url}/facts", "--http1.1", *options, "--data-binary", "@-", body=body)
    assert (0, [100, 200]) == (answer.exit_code, answer.statuses)
    assert MIB == answer.json()["body_bytes"]


def test_a_client_that_gives_up_ends_the_handler(url: str, http: str):
    before = curl(f"{url}/cancelled").json()["cancelled"]
    answer = curl(f"{url}/wait", http, "--max-time", "0.5")
    assert (28, b"") == (answer.exit_code, answer.body)
    wait_until(lambda: curl(f"{url}/cancelled").json()["cancelled"] == before + 1)


def test_output_comes_as_it_is_made(url: str, http: str):
    command = ["curl", "--silent", "--no-buffer", http, f"{url}/gated"]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        try:
            assert select.select([process.stdout], [], [], _LINE_TIMEOUT_S)[0]
            assert b"one\n" == process.stdout.readline()
            check(curl(f"{url}/release", http), http)
            assert b"two\n" == process.stdout.read()
            assert 0 == process.wait(_LINE_TIMEOUT_S)
        finally:
            process.kill()


def test_health_and_routes(url: str, http: str):
    healthy = curl(f"{url}/-/healthz", http)
    check(healthy, http)
    assert b"success" == healthy.body
    routes = curl(f"{url}/-/routes", http)
    check(routes, http)
    assert {"/": "default"} == routes.json()
