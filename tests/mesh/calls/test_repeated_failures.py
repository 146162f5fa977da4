"""A failure that clients repeat is written to the log once a minute, at every door."""

from __future__ import annotations

import contextlib
import re
import uuid
from pathlib import Path

import grpc
import httpx
import pytest

import pyserve
from tests.mesh.calls.mesh import echo_mesh
from tests.mesh.calls.test_handlers_that_fail import RAISE, failing_calls, failure_of
from tests.support.mesh import running_mesh
from tests.support.waiting import eventually, wait_until

pytestmark = pytest.mark.slow
CALLS = 20
BEGINNING = "Traceback (most recent call last)"


async def test_services_write_the_traceback_of_each_handler_once() -> None:
    async with echo_mesh() as mesh:
        for _ in range(CALLS):
            calls = failing_calls(mesh.stub, RAISE)
            for call in calls.values():
                assert grpc.StatusCode.UNKNOWN is (await failure_of(call)).code()
        await eventually(lambda: mesh.running.output().count(BEGINNING) >= len(calls))
        assert len(calls) == mesh.running.output().count(BEGINNING)


@pytest.mark.parametrize(
    ("target", "door", "written"),
    [
        ("app", "http", "LookupError: http"),
        ("app", "stream", "LookupError: stream"),
        ("app", "batch", "LookupError: batch"),
        ("app", "model", "RuntimeError: model"),
        ("app", "child", "LookupError: child"),
        ("app", "thread", "LookupError: thread"),
        ("web", "", "LookupError: asgi"),
    ],
)
def test_plain_doors_write_a_traceback_once_whatever_text_a_client_chooses(
    target: str, door: str, written: str
) -> None:
    """Of user code alone, and a line for each other call with its id, as many as there may be."""
    with running_mesh(f"tests.mesh.apps.failing:{target}") as mesh:
        with httpx.Client(base_url=f"http://{mesh.address}", timeout=30) as client:
            for number in range(CALLS):
                query = {"door": door, "text": uuid.uuid4().hex}
                headers = {"x-request-id": f"call-{number}"}
                # An answer that has begun breaks off.
                with contextlib.suppress(httpx.RemoteProtocolError):
                    answer = client.get("/", params=query, headers=headers)
                    assert answer.is_server_error or door == "stream"
        last = f"[call-{CALLS - 1}]"
        wait_until(lambda: written in mesh.output() and last in mesh.output())
        output = mesh.output()
    # One that passes a second replica is written by it too, with what the first one has said.
    passed = 2 if door in {"child", "thread"} else 1
    assert len(re.findall(r"^\S+   Traceback", output, re.MULTILINE)) <= 2 * passed
    assert all(f"[call-{number}]" in output for number in range(CALLS))
    assert f'"{Path(pyserve.__file__).parent}' not in output


def test_an_exception_that_a_batch_has_returned_is_a_line() -> None:
    """It is the documented answer to one item, and no failure of the code."""
    with running_mesh("tests.mesh.apps.failing:app") as mesh:
        for number in range(3):
            query, headers = {"door": "item", "text": "x"}, {"x-request-id": f"call-{number}"}
            answer = httpx.get(f"http://{mesh.address}/", params=query, headers=headers, timeout=30)
            assert 500 == answer.status_code
        wait_until(lambda: "[call-2]" in mesh.output())
        output = mesh.output()
    assert BEGINNING not in output
    line = "LookupError in GET /: item x (returned for an item of a batch)"
    assert 3 == len(re.findall(rf"W .*\[call-\d\]: {re.escape(line)}$", output, re.MULTILINE))


def test_a_text_with_line_feeds_makes_no_line_that_begins_like_a_record() -> None:
    forged = "E 2026-01-01 00:00:00,000 pyserve.replica: forged"
    with running_mesh("tests.mesh.apps.failing:web") as mesh:
        text = f"\x1b[2J\n{forged}"
        answer = httpx.get(f"http://{mesh.address}/", params={"text": text}, timeout=30)
        assert answer.is_server_error
        wait_until(lambda: forged in mesh.output())
        output = mesh.output()
    assert "LookupError: asgi \\x1b[2J\n" in output
    # Replicas' lines have their name before them.
    bare = [line.partition("] ")[2] for line in output.splitlines() if forged in line]
    assert [f"  {forged}"] == bare
