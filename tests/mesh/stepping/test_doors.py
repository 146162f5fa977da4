"""Handles, plain HTTP, events and stubs get the values of a class that answers by steps.

One whose own engine batches, and one that steps in a process of its own, answer alike.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable
from typing import Any

import grpc
import httpx
import pytest

import pyserve
from services.echo import echo_pb2, echo_pb2_grpc
from tests.support.mesh import RunningMesh
from tests.support.waiting import wait_until

pytestmark = pytest.mark.slow

_ENDLESS = 1_000_000


def handle() -> pyserve.DeploymentHandle[Any]:
    return pyserve.DeploymentHandle("Counter", "default")


def held() -> int:
    admitted, released, _ = handle().tally.remote().result(timeout_s=10)
    return int(admitted - released)


def wait_released() -> None:
    wait_until(lambda: held() == 0, what="every state has been released")


@pytest.fixture
def stub(mesh: RunningMesh) -> Any:
    with grpc.insecure_channel(mesh.address) as channel:
        yield echo_pb2_grpc.EchoStub(channel)


@pytest.fixture
def http(mesh: RunningMesh) -> Any:
    with httpx.Client(base_url=f"http://{mesh.address}", trust_env=False, timeout=20) as client:
        yield client


@pytest.mark.usefixtures("mesh")
class TestHandles:
    async def test_the_last_value_and_each(self) -> None:
        assert await handle().remote({"count": 3}) == {"made": 3}
        streamed = handle().options(stream=True).remote({"count": 3})
        assert [each async for each in streamed] == [{"made": n} for n in (1, 2, 3)]

    @pytest.mark.parametrize("mesh", ["app", "process"], indirect=True)
    async def test_many_share_the_steps(self) -> None:
        _, _, before = await handle().tally.remote()
        await asyncio.gather(*(handle().remote({"count": 10}) for _ in range(8)))
        _, _, after = await handle().tally.remote()
        assert 20 <= after - before < 50

    async def test_a_failure_keeps_its_type(self) -> None:
        with pytest.raises(ValueError, match="failed at 2"):
            await handle().remote({"count": 3, "fails_at": 2})

    async def test_refusals_have_a_code(self) -> None:
        with pytest.raises(pyserve.RequestTooLarge) as caught:
            await handle().remote({"count": 1, "cost": 101})
        assert caught.value.code is grpc.StatusCode.RESOURCE_EXHAUSTED

    async def test_cancelling_releases_the_state(self) -> None:
        answer = handle().options(stream=True).remote({"count": _ENDLESS})
        assert await anext(aiter(answer)) == {"made": 1}
        answer.cancel()
        last = handle().remote({"count": _ENDLESS})
        await asyncio.sleep(0)
        last.cancel()
        await asyncio.to_thread(wait_released)

    async def test_a_deadline_releases_the_state(self) -> None:
        with pytest.raises(pyserve.RequestTimeout):
            await handle().options(timeout_s=0.1).remote({"count": _ENDLESS})
        await asyncio.to_thread(wait_released)


class TestHttp:
    def test_json_is_the_last_value(self, http: httpx.Client) -> None:
        answer = http.post("/", json={"count": 3})
        assert (answer.status_code, answer.json()) == (200, {"made": 3})

    def test_events_are_each_value(self, http: httpx.Client) -> None:
        answer = http.post("/", json={"count": 3}, headers={"accept": "text/event-stream"})
        assert answer.headers["content-type"] == "text/event-stream; charset=utf-8"
        assert answer.text == "".join(f'data: {{"made":{n}}}\n\n' for n in (1, 2, 3))

    def test_a_failure_in_the_middle_is_an_event(
        self, http: httpx.Client, mesh: RunningMesh
    ) -> None:
        request = {"count": 3, "fails_at": 2}
        answer = http.post("/", json=request, headers={"accept": "text/event-stream"})
        first, second, rest = answer.text.split("\n\n")
        assert (first, rest) == ('data: {"made":1}', "")
        name, data = second.split("\n")
        assert name == "event: error"
        text = json.loads(data.removeprefix("data: "))["error"]
        assert text == "The deployment raised an exception; its log has the traceback."
        assert "ValueError: failed at 2" in mesh.output()

    def test_a_failure_before_the_first_event_has_a_status(self, http: httpx.Client) -> None:
        request = {"count": 3, "fails_at": 1}
        answer = http.post("/", json=request, headers={"accept": "text/event-stream"})
        assert answer.status_code == 500

    def test_one_that_is_too_large_is_413(self, http: httpx.Client) -> None:
        answer = http.post("/", json={"count": 3, "cost": 101})
        assert answer.status_code == 413
        assert "more than the whole budget of " in answer.text

    @pytest.mark.usefixtures("mesh")
    def test_more_than_may_wait_are_503(self, http: httpx.Client) -> None:
        calls = [handle().remote({"count": _ENDLESS}) for _ in range(12)]
        wait_until(
            lambda: handle().waiting.remote().result(timeout_s=10) == 8, what="the queue is full"
        )
        answer = http.post("/", json={"count": 1})
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
        assert re.fullmatch(r"8 requests wait for \w+, as many as may\n", answer.text)
        for call in calls:
            call.cancel()
        wait_released()

    def test_a_client_that_leaves_its_events_releases_the_state(self, http: httpx.Client) -> None:
        headers = {"accept": "text/event-stream"}
        with http.stream("POST", "/", json={"count": _ENDLESS}, headers=headers) as answer:
            assert next(answer.iter_lines()) == 'data: {"made":1}'
        wait_released()


class TestStubs:
    def test_the_last_value_and_each(self, stub: Any) -> None:
        assert stub.Echo(echo_pb2.EchoRequest(payload=b"x"), timeout=10).payload == b"x3"
        messages = stub.EchoStream(echo_pb2.StreamRequest(payload=b"y", messages=3), timeout=10)
        assert [each.payload for each in messages] == [b"y1", b"y2", b"y3"]

    @pytest.mark.parametrize("end", ["cancel", "deadline"])
    def test_the_end_of_a_stream_releases_the_state(self, stub: Any, end: str) -> None:
        request = echo_pb2.StreamRequest(payload=b"y", messages=_ENDLESS)
        messages = stub.EchoStream(request, timeout=10 if end == "cancel" else 0.2)
        assert next(messages).payload == b"y1"
        if end == "cancel":
            messages.cancel()
        code = _code_of(lambda: list(messages))
        expected = "CANCELLED" if end == "cancel" else "DEADLINE_EXCEEDED"
        assert code.name == expected
        wait_released()


def _code_of(call: Callable[[], object]) -> grpc.StatusCode:
    with pytest.raises(grpc.RpcError) as caught:
        call()
    error: Any = caught.value
    code: grpc.StatusCode = error.code()
    return code


@pytest.mark.parametrize("mesh", ["app"], indirect=True)
class TestPage:
    @pytest.mark.usefixtures("mesh")
    def test_it_has_what_steps_hold_and_make(self) -> None:
        (ingress,) = pyserve.status().ingresses
        url = f"http://{ingress.admin}/api/deployments/default/Counter.json"
        running = handle().remote({"count": _ENDLESS, "cost": 7})

        def shown() -> dict[str, Any]:
            with httpx.Client(trust_env=False, timeout=20) as client:
                (steps,) = client.get(url).raise_for_status().json()["steps"]
            return dict(steps)

        try:
            wait_until(lambda: shown()["steps_per_second"] > 0, what="steps are shown")
            steps = shown()
        finally:
            running.cancel()
        assert (steps["class"], steps["running"], steps["waiting"]) == ("Counter", 1, 0)
        assert (steps["budget_used"], steps["budget"]) == (7, 100)
        assert steps["size_mean"] == 1
        wait_released()
