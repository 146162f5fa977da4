"""Continuous batching, costs and cache keys in the test's own process."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from typing import Any

import grpc
import httpx
import pytest

import pyserve
from pyserve import testing
from services.echo import echo_pb2, echo_pb2_grpc
from tests.mesh.caches.apps import remembering
from tests.mesh.stepping import apps
from tests.support.waiting import wait_until

pytestmark = pytest.mark.slow

_ENDLESS = 1_000_000
_EVENTS = {"accept": "text/event-stream"}


@pyserve.deployment(max_ongoing_requests=1, max_queued_cost=100)
@pyserve.continuous(max_running=1, max_waiting=1, budget=60)
class Priced:
    """Answers with the number of steps that the request wants; each request costs 60."""

    def cost(self, _what: object) -> int:
        return 60

    def admit(self, steps: int) -> list[int]:
        return [0, steps]

    def step(self, states: list[list[int]]) -> list[pyserve.Emit]:
        time.sleep(0.005)
        for state in states:
            state[0] += 1
        return [(pyserve.Emit if made < wanted else pyserve.Done)(made) for made, wanted in states]


@pytest.fixture(scope="module", params=["app", "engine", "process"])
def client(request: pytest.FixtureRequest) -> Iterator[testing.Client]:
    with testing.client(getattr(apps, request.param), timeout_s=30) as client:
        yield client


@pytest.fixture(scope="module")
def queued() -> Iterator[testing.Client]:
    limits = {"name": "Queued", "max_ongoing_requests": 1, "max_queued_cost": 100}
    with testing.client(apps.Slow.options(**limits).bind(1), name="queued") as client:
        yield client


@pytest.fixture(scope="module")
def kept() -> Iterator[testing.Client]:
    with testing.client(remembering, name="kept", timeout_s=30) as client:
        yield client


def _held(handle: Any) -> int:
    admitted, released, _ = handle.tally.remote().result(timeout_s=10)
    return int(admitted - released)


class TestSteps:
    def test_a_handle_gets_the_last_value_or_each(self, client: testing.Client) -> None:
        assert {"made": 3} == client.handle.remote({"count": 3}).result(timeout_s=20)
        streamed = client.handle.options(stream=True).remote({"count": 3})
        assert [{"made": n} for n in (1, 2, 3)] == list(streamed)

    def test_so_does_http(self, client: testing.Client) -> None:
        assert {"made": 2} == client.http.post("/", json={"count": 2}).json()
        events = client.http.post("/", json={"count": 2}, headers=_EVENTS)
        assert 'data: {"made":1}\n\ndata: {"made":2}\n\n' == events.text
        failed = client.http.post("/", json={"count": 3, "fails_at": 2}, headers=_EVENTS).text
        assert "event: error\ndata: " in failed

    def test_so_do_stubs(self, client: testing.Client) -> None:
        stub = client.stub(echo_pb2_grpc.EchoStub)
        assert b"x3" == stub.Echo(echo_pb2.EchoRequest(payload=b"x"), timeout=20).payload
        request = echo_pb2.StreamRequest(payload=b"y", messages=2)
        assert [b"y1", b"y2"] == [each.payload for each in stub.EchoStream(request, timeout=20)]

    def test_a_request_that_no_budget_would_do_for_is_refused(self, client: testing.Client) -> None:
        with pytest.raises(pyserve.RequestTooLarge):
            client.handle.remote({"count": 1, "cost": 101}).result(timeout_s=20)
        assert 413 == client.http.post("/", json={"count": 1, "cost": 101}).status_code

    def test_who_leaves_has_its_state_released(self, client: testing.Client) -> None:
        answer = client.handle.options(stream=True).remote({"count": _ENDLESS})
        assert {"made": 1} == next(iter(answer))
        answer.cancel()
        with client.http.stream("POST", "/", json={"count": _ENDLESS}, headers=_EVENTS) as events:
            next(events.iter_bytes())
        wait_until(lambda: _held(client.handle) == 0, what="every state has been released")


def test_the_end_of_the_block_ends_what_runs() -> None:
    short = apps.Counter.options(graceful_shutdown_timeout_s=0.1).bind()
    with testing.local(short, name="short") as handle:
        stream = handle.options(stream=True).remote({"count": _ENDLESS})
        assert {"made": 1} == next(iter(stream))
    with pytest.raises(pyserve.PyserveError):
        for _ in stream:
            pass


class TestCosts:
    async def test_what_waits_is_limited_by_what_handles_say_it_costs(
        self, queued: testing.Client
    ) -> None:
        handle = queued.handle
        running = handle.options(stream=True).remote(_ENDLESS)
        holding = asyncio.ensure_future(anext(aiter(running)))
        waiting = [asyncio.ensure_future(handle.options(cost=40).remote(1)) for _ in range(2)]

        async def is_refused(cost: float) -> bool:
            try:
                await handle.options(cost=cost, timeout_s=0.2).remote(1)
            except pyserve.BackPressure as error:
                return "max_queued_cost=100" in str(error)
            except pyserve.RequestTimeout:
                return False
            return False

        async with asyncio.timeout(20):
            while not await is_refused(30):
                pass
        assert not await is_refused(10)
        running.cancel()
        await asyncio.gather(*waiting)
        await asyncio.wait([holding])
        assert holding.cancelled() or holding.exception() is not None

    async def test_or_by_what_calls_like_it_have_cost(self) -> None:
        app = Priced.bind()  # type: ignore[attr-defined]  # a class decorator returns it
        with testing.local(app, name="priced") as handle:
            await handle.remote(1)
            calls = [handle.remote(_ENDLESS), handle.remote(1)]
            tasks = [asyncio.ensure_future(call) for call in calls]

            async def is_refused() -> bool:
                try:
                    await handle.options(timeout_s=0.2).remote(1)
                except pyserve.BackPressure:
                    return True
                except pyserve.RequestTimeout:
                    return False
                return False

            async with asyncio.timeout(20):
                while not await is_refused():
                    pass
            calls[0].cancel()
            first, second = await asyncio.gather(*tasks, return_exceptions=True)
            assert isinstance(first, pyserve.RequestCancelled)
            assert 1 == second

    def test_clients_say_it_by_a_header(self, queued: testing.Client) -> None:
        said = queued.http.post("/", json=1, headers={"pyserve-cost": "2.5"})
        assert 200 == said.status_code
        wrong = queued.http.post("/", json=1, headers={"pyserve-cost": "much"})
        assert 400 == wrong.status_code
        assert "pyserve-cost" in wrong.text

    def test_and_by_metadata(self, client: testing.Client) -> None:
        stub = client.stub(echo_pb2_grpc.EchoStub)
        told = (("pyserve-cost", "3"),)
        assert b"3" == stub.Echo(echo_pb2.EchoRequest(), metadata=told, timeout=20).payload
        with pytest.raises(grpc.RpcError) as caught:
            stub.Echo(echo_pb2.EchoRequest(), metadata=(("pyserve-cost", "-1"),), timeout=20)
        assert grpc.StatusCode.INVALID_ARGUMENT is caught.value.code()


class TestCacheKeys:
    @pytest.mark.parametrize("keys", [["pear"], lambda key: [key]], ids=["listed", "by function"])
    def test_a_call_of_a_handle_that_names_them_is_answered(
        self, kept: testing.Client, keys: Any
    ) -> None:
        remember = kept.handle.options(method_name="remember", cache_keys=keys)
        remember.remote("pear").result(timeout_s=20)
        assert remember.remote("pear").result(timeout_s=20)["found"]

    def test_so_is_one_by_http(self, kept: testing.Client) -> None:
        def get(header: str) -> httpx.Response:
            return kept.http.get("/?key=plum", headers={"pyserve-cache-keys": header})

        assert not get("plum").json()["found"]
        assert get("plum, other").json()["found"]
        assert 400 == get("a,,b").status_code
