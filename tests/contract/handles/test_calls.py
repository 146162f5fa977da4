"""Calls with one answer: from loops, threads and other deployments."""

import asyncio
import threading

import grpc
import pytest

import pyserve
from pyserve.exceptions import RequestCancelled, RequestTimeout
from tests.contract.handles.apps import Mute, Refused
from tests.support.waiting import eventually


async def test_arguments_and_answers_keep_their_types(echo):
    for value in (None, 1, "ü", [1, (2, 3)], {"a": {4}}, b"\x00", 1.5):
        assert value == await echo.remote(value)
    assert "haha" == await echo.say.remote("ha", times=2)


def test_a_script_without_a_loop_waits_for_results(echo):
    responses = [echo.say.remote(str(number)) for number in range(20)]

    assert [str(number) for number in range(20)] == [
        each.result(timeout_s=30) for each in responses
    ]


async def test_a_response_can_be_awaited_on_another_loop(echo):
    response = echo.say.remote("across")

    assert "across" == await asyncio.to_thread(lambda: asyncio.run(_awaited(response)))


async def _awaited(response):
    return await response


async def test_plain_methods_run_on_threads(echo):
    assert threading.current_thread().name != await echo.thread.remote()


async def test_deployments_call_each_other_and_functions(front):
    assert "HELLO" == await front.remote("hello")


async def test_a_thread_of_a_deployment_may_block_on_a_call(front):
    assert "deep" == await front.from_thread.remote("deep")


async def test_user_code_knows_its_request_and_its_replica(echo):
    response = echo.options(multiplexed_model_id="m1", timeout_s=20).seen.remote()

    assert (response.request_id, "m1", True, "Echo") == await response


async def test_child_calls_inherit_id_and_deadline(front):
    above, below = await front.id_below.remote()
    assert above == below
    assert not await front.deadline_below.remote()
    assert await front.options(timeout_s=30).deadline_below.remote()


async def test_exceptions_of_user_code_keep_their_type_and_traceback(echo):
    with pytest.raises(Refused, match="no sugar") as caught:
        await echo.fail.remote("no sugar")
    assert "no sugar" == caught.value.reason
    assert "in fail" in caught.value.remote_traceback


async def test_an_abort_keeps_its_status(echo):
    with pytest.raises(pyserve.Abort, match="there is none") as caught:
        await echo.abort.remote()
    assert grpc.StatusCode.NOT_FOUND is caught.value.code


async def test_a_missing_method_is_named_with_what_is_there(echo):
    with pytest.raises(pyserve.PyserveError, match=r"no method 'sai'.*did you mean 'say'"):
        await echo.sai.remote("x")


async def test_wrong_arguments_are_a_type_error(echo):
    with pytest.raises(TypeError, match="unexpected keyword argument 'loud'"):
        await echo.say.remote("x", loud=True)


async def test_a_call_of_a_generator_without_stream_says_what_to_write(echo):
    with pytest.raises(pyserve.PyserveError, match=r"stream=True"):
        await echo.numbers.remote(3)
    with pytest.raises(pyserve.PyserveError, match=r"stream=True"):
        async for _ in echo.say.options(stream=True).remote("x"):
            pass


async def test_a_cancelled_call_ends_in_the_deployment(echo):
    response = echo.wait.remote("cancelled")
    await echo.say.remote("the call before has arrived")

    response.cancel()

    with pytest.raises((RequestCancelled, asyncio.CancelledError)):
        await response
    await _has_ended(echo, "cancelled")


async def test_a_cancel_reaches_the_calls_below(front, echo):
    response = front.wait_below.remote("below")
    await asyncio.gather(*(front.remote("warm") for _ in range(3)))

    response.cancel()

    await _has_ended(echo, "below")


async def test_a_deadline_ends_the_call_here_and_there(echo):
    with pytest.raises(RequestTimeout):
        await echo.options(timeout_s=1.0).wait.remote("late")
    await _has_ended(echo, "late")


async def test_a_cancelled_method_may_call_to_tidy_up(echo):
    response = echo.wait_and_tidy_up.remote("tidied up")
    await echo.say.remote("the call before has arrived")
    response.cancel()
    with pytest.raises(RequestTimeout):
        await echo.options(timeout_s=1.0).wait_and_tidy_up.remote("tidied up late")

    for name in ("tidied up", "tidied up late"):
        await _has_ended(echo, name)


def test_a_result_that_does_not_come_in_time_leaves_the_call_alone(echo):
    response = echo.wait.remote("left alone")
    with pytest.raises(TimeoutError):
        response.result(timeout_s=0.1)
    assert not response.cancelled()
    response.cancel()
    assert response.cancelled()


async def _has_ended(echo, name):
    async def ended() -> bool:
        return name in await echo.ended.remote()

    await eventually(ended, what=f"{name!r} has ended in the deployment")


@pytest.mark.parametrize("kind", ["mute", "surrogate", "abort", "base"])
@pytest.mark.parametrize("method", ["fail_oddly", "fail_oddly_on_a_thread"])
def test_exceptions_without_a_proper_text_end_their_calls(echo, method, kind):
    """Whatever a method raises, its caller is told, and its place becomes free."""
    with pytest.raises((pyserve.RemoteError, pyserve.Abort, ValueError, Mute)):
        getattr(echo, method).remote(kind).result(timeout_s=30)


@pytest.mark.parametrize("kind", ["mute", "surrogate", "abort", "base"])
def test_exceptions_without_a_proper_text_end_their_streams(echo, kind):
    """The items before it arrive, and then the end."""
    stream = iter(echo.fail_oddly_after_one.options(stream=True, timeout_s=5).remote(kind))
    assert 1 == next(stream)
    with pytest.raises((pyserve.RemoteError, pyserve.Abort, ValueError, Mute)):
        next(stream)
