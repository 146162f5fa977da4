"""Requests of plain HTTP as arguments of calls."""

from __future__ import annotations

import httpx
import pytest

import pyserve
from tests.mesh.plain_http.passing import Between, Passing, PassingOnAThread, Reader

pytestmark = pytest.mark.slow

# The second one comes in several pieces.
SIZES = [3, 3_000_000]


@pytest.fixture(scope="module")
def passing(base_url: str) -> None:
    reader = Reader.bind()
    pyserve.run(Passing.bind(reader, Between.bind(reader)), name="passing", route_prefix="/pass")
    pyserve.run(PassingOnAThread.bind(Reader.bind()), name="thread", route_prefix="/thread")


@pytest.mark.parametrize("size_bytes", SIZES)
@pytest.mark.parametrize("path", ["/pass?to=reader", "/pass?to=between", "/thread?to=reader"])
def test_a_request_is_passed_on_with_its_body(
    passing: None, client: httpx.Client, path: str, size_bytes: int
) -> None:
    prefix, _, query = path.partition("?")
    answer = client.put(path, content=bytes(size_bytes), headers={"x-own": "mine"})

    assert {
        "method": "PUT",
        "path": prefix,
        "query": {"to": query.removeprefix("to=")},
        "own": "mine",
        "client": "127.0.0.1",
        "bytes": size_bytes,
        "has_left": False,
    } == answer.json()


def test_what_was_passed_on_is_read_as_json_and_as_a_form(
    passing: None, client: httpx.Client
) -> None:
    assert 6 == client.post("/pass?to=sum", json=[1, 2, 3]).json()
    assert {"a": "1"} == client.post("/pass?to=form", data={"a": "1"}).json()
