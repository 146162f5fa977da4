"""A failure that clients repeat is written to the log once a minute, at every door."""

from __future__ import annotations

import contextlib
import uuid

import grpc
import httpx
import pytest

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
    with running_mesh(f"tests.mesh.apps.failing:{target}") as mesh:
        with httpx.Client(base_url=f"http://{mesh.address}", timeout=30) as client:
            for _ in range(CALLS):
                query = {"door": door, "text": uuid.uuid4().hex}
                # An answer that has begun breaks off.
                with contextlib.suppress(httpx.RemoteProtocolError):
                    assert client.get("/", params=query).is_server_error or door == "stream"
        wait_until(lambda: written in mesh.output())
        # One that passes a second replica is written by it too.
        replicas = 2 if door in {"child", "thread"} else 1
        assert mesh.output().count("unexpected") + mesh.output().count("raised") <= replicas


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
