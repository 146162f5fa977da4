"""Rules that name applications are judged on what a call leads to, whatever it says of itself."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any

import grpc
import httpx
import pytest
from google.protobuf import empty_pb2

from services.echo import echo_pb2, echo_pb2_grpc
from tests.mesh.doors import things_pb2, things_pb2_grpc
from tests.mesh.security.clients import TIMEOUT_S, bearer, code_of
from tests.support.mesh import RunningMesh, running_mesh
from tests.support.waiting import wait_until

TILL, BOTH = "a-token-for-the-till", "a-token-for-both-of-them"


def hashed(token: str) -> str:
    return f"sha256:{hashlib.sha256(token.encode()).hexdigest()}"


RULES = f"""
rules:
  - name: till
    paths: [/**]
    applications: [till]
    tokens: ["{hashed(TILL)}"]
  - name: both
    paths: ["/services.echo.Echo/*", /till/**, /store/**]
    applications: [till, store]
    tokens: ["{hashed(BOTH)}"]
  - name: everybody
    paths: [/store/open]
    applications: [store]
    anonymous: true
"""
APPLICATIONS = """
applications:
  - {name: till, import_path: "tests.mesh.security.apps:till", route_prefix: /till}
  - {name: store, import_path: "tests.mesh.security.apps:store", route_prefix: /store}
"""


@pytest.fixture(scope="module")
def mesh(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningMesh]:
    folder = tmp_path_factory.mktemp("files")
    rules, file = folder / "access.yaml", folder / "serve.yaml"
    rules.write_text(RULES)
    file.write_text(APPLICATIONS)
    with running_mesh(str(file), environment={"PYSERVE_ACCESS_FILE": str(rules)}) as mesh:
        yield mesh


def answerer(mesh: RunningMesh, token: str, application: str | None = None) -> str:
    """Return which application answers a call, or the code that it ends with."""
    named = () if application is None else (("application", application),)
    with grpc.insecure_channel(mesh.address) as channel:
        stub = echo_pb2_grpc.EchoStub(channel)
        try:
            reply = stub.Echo(
                echo_pb2.EchoRequest(), timeout=TIMEOUT_S, metadata=(*bearer(token), *named)
            )
        except grpc.RpcError as error:
            return code_of(error).name
    return reply.payload.decode()


@pytest.mark.parametrize(
    ("token", "application", "expected"),
    [
        (TILL, "till", "till"),
        # For this caller there is one.
        (TILL, None, "till"),
        (TILL, "store", "PERMISSION_DENIED"),
        (TILL, "nothing", "PERMISSION_DENIED"),
        (BOTH, "till", "till"),
        (BOTH, "store", "store"),
        (BOTH, None, "INVALID_ARGUMENT"),
        (BOTH, "nothing", "PERMISSION_DENIED"),
        ("a-token-of-nobody", "till", "UNAUTHENTICATED"),
    ],
)
def test_the_header_picks_among_those_that_the_caller_may_call(
    mesh: RunningMesh, token: str, application: str | None, expected: str
) -> None:
    assert expected == answerer(mesh, token, application)


@pytest.mark.parametrize("application", [None, "till", "store"])
def test_a_service_of_one_application_is_its_own_whatever_a_call_says(
    mesh: RunningMesh, application: str | None
) -> None:
    """The name picks among several, so of one it changes nothing."""
    named = () if application is None else (("application", application),)
    with grpc.insecure_channel(mesh.address) as channel:
        stub = things_pb2_grpc.ThingsStub(channel)
        with pytest.raises(grpc.RpcError) as caught:
            stub.Echo(things_pb2.Thing(), timeout=TIMEOUT_S, metadata=(*bearer(TILL), *named))

    assert grpc.StatusCode.PERMISSION_DENIED is code_of(caught.value)


def test_refusals_name_no_application(mesh: RunningMesh) -> None:
    """Neither does that of a method which nobody has: it is the same one."""
    texts = []
    with grpc.insecure_channel(mesh.address) as channel:
        for method in ("/things.v1.Things/Echo", "/things.v1.Things/Ecko", "/a.B/C"):
            call: Any = channel.unary_unary(method, empty_pb2.Empty.SerializeToString)
            with pytest.raises(grpc.RpcError) as caught:
                call(empty_pb2.Empty(), timeout=TIMEOUT_S, metadata=bearer(TILL))
            texts.append((code_of(caught.value), caught.value.details()))

    assert 1 == len(set(texts)), texts


def asked(mesh: RunningMesh, method: str, path: str, token: str = "", **headers: str) -> int:
    known = dict(bearer(token or None))
    body = b"{}" if method == "POST" else b""
    headers = {"content-type": "application/json", **headers} if body else headers
    url = f"http://{mesh.address}{path}"
    all_headers = {**known, **headers}
    answer = httpx.request(method, url, content=body, headers=all_headers, timeout=TIMEOUT_S)
    return answer.status_code


@pytest.mark.parametrize(
    ("method", "path", "token", "expected"),
    [
        ("GET", "/till/a", TILL, 200),
        ("GET", "/store/a", TILL, 403),
        ("GET", "/store/open", TILL, 200),
        ("GET", "/store/open", "", 200),
        ("GET", "/store/a", "", 401),
        ("GET", "/till/a", BOTH, 200),
        ("GET", "/store/a", BOTH, 200),
        ("GET", "/stare/a", TILL, 403),
        # Connect and JSON of a method, and paths of REST.
        ("POST", "/services.echo.Echo/Echo", TILL, 200),
        ("POST", "/things.v1.Things/Echo", TILL, 403),
        ("POST", "/things.v1.Things/Ecko", TILL, 403),
        ("POST", "/v1/echo", TILL, 403),
        ("GET", "/v1/things/a", TILL, 403),
        # All applications are in it, and none has it.
        ("GET", "/-/routes", TILL, 403),
    ],
)
def test_other_protocols_are_judged_on_what_they_lead_to(
    mesh: RunningMesh, method: str, path: str, token: str, expected: int
) -> None:
    assert expected == asked(mesh, method, path, token)


def test_json_of_a_page_is_judged_when_it_comes(mesh: RunningMesh) -> None:
    """Its preflight has no token, and is answered alike whatever there is."""
    page = {"origin": "https://page.example", "access-control-request-method": "POST"}
    for path in ("/services.echo.Echo/Echo", "/things.v1.Things/Echo", "/nothing/here"):
        assert 204 == asked(mesh, "OPTIONS", path, **page), path


def test_a_method_that_the_caller_may_not_call_is_not_proposed(mesh: RunningMesh) -> None:
    url = f"http://{mesh.address}/services.echo.Echo/Ecko"
    headers = {"content-type": "application/json", **dict(bearer(BOTH))}
    answer = httpx.post(url, content=b"{}", headers=headers, timeout=TIMEOUT_S)

    assert 403 == answer.status_code
    assert "Echo" not in answer.text


def test_refusals_are_written_down_as_others_are(mesh: RunningMesh) -> None:
    assert "PERMISSION_DENIED" == answerer(mesh, TILL, "store")
    wait_until(lambda: "refused /services.echo.Echo/Echo" in mesh.output(), TIMEOUT_S)
