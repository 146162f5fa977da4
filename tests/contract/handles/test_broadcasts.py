"""What the answers of all replicas can be asked for; each deployment here has one."""

import asyncio

import pytest

from pyserve.exceptions import RequestCancelled, RequestTimeout
from pyserve.handle import DeploymentBroadcastResponse
from tests.contract.handles.apps import Refused
from tests.support.waiting import eventually


@pytest.mark.parity("G-52")
async def test_results_are_awaited_with_and_without_a_limit(echo):
    broadcast = echo.broadcast("say", "hi", times=2)

    assert isinstance(broadcast, DeploymentBroadcastResponse)
    assert ["hihi"] == await broadcast.results_async()
    assert ["hihi"] == await broadcast.results_async(timeout_s=0), "they are here already"
    assert ["hihi"] == await broadcast


@pytest.mark.parity("G-52")
def test_threads_take_results_too(echo):
    assert ["hi"] == echo.broadcast("say", "hi").results(timeout_s=30)
    assert ["hi"] == echo.broadcast("say", "hi").results()
    assert ["hi"] == echo.broadcast("say", "hi").result(10)


@pytest.mark.parity("G-52")
async def test_a_handle_for_streams_broadcasts_as_any_other(echo):
    assert ["hi"] == await echo.options(stream=True).broadcast("say", "hi").results_async()


@pytest.mark.parity("G-52")
def test_a_generator_says_that_a_broadcast_takes_values(echo):
    with pytest.raises(TypeError, match="a broadcast takes one value of each replica"):
        echo.options(stream=True).broadcast("numbers", 3).results(timeout_s=10)


@pytest.mark.parity("G-52")
def test_exceptions_are_raised_or_returned(echo):
    broadcast = echo.broadcast("fail", "no")

    (returned,) = broadcast.results(timeout_s=10, return_exceptions=True)
    assert "no" == returned.reason
    with pytest.raises(Refused, match="no"):
        broadcast.results(timeout_s=30)
    with pytest.raises(Refused, match="no"):
        asyncio.run(_await(broadcast))


async def _await(awaitable):
    return await awaitable


@pytest.mark.parametrize("return_exceptions", [False, True])
async def test_the_calls_go_on_when_the_time_is_over(echo, return_exceptions):
    broadcast = echo.broadcast("wait", f"broadcast {return_exceptions}")

    with pytest.raises(RequestTimeout, match=r"1 of 1 replicas have not answered within 0\.01 s"):
        await broadcast.results_async(timeout_s=0.01, return_exceptions=return_exceptions)
    with pytest.raises(RequestTimeout, match=r"no answer within"):
        await asyncio.to_thread(
            broadcast.results, timeout_s=0.01, return_exceptions=return_exceptions
        )
    (response,) = broadcast.responses.values()
    assert not response.done()

    broadcast.cancel()
    with pytest.raises(RequestCancelled):
        await broadcast


async def test_a_wait_that_is_cancelled_cancels_the_calls(handles):
    door = handles("Door")
    await door.begin_again.remote()
    waiting = asyncio.ensure_future(_await(door.broadcast("enter", "somebody")))

    async def are_inside(count):
        inside, _, _ = await door.look.remote()
        return inside == count

    await eventually(lambda: are_inside(1))
    waiting.cancel()
    await eventually(lambda: are_inside(0))
    with pytest.raises(asyncio.CancelledError):
        await waiting
