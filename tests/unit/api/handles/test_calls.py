"""The life of a call: started, awaited, waited for, cancelled, and what it inherits."""

from __future__ import annotations

import asyncio
import gc
import os
import re
import signal
import threading
import time
from typing import Any

import grpc
import msgpack
import pytest

import pyserve
from pyserve.api.context import attach
from pyserve.api.handles.failures import FAILURE_KEY
from pyserve.api.handles.framing import REFERENCE, read_request
from pyserve.bridge import DONE, MESSAGE
from pyserve.errors import (
    BackPressure,
    DeploymentUnavailable,
    MeshNotFound,
    OptionError,
    RemoteError,
    RequestCancelled,
    RequestTimeout,
    SerializationError,
    UsageError,
)
from pyserve.request import CURRENT, Request
from tests.support.waiting import eventually, wait_until
from tests.unit.api.handles.fakes import FakeCaller, FakeMesh, FakeReservation, descriptor


async def test_a_call_is_sent_before_remote_returns(
    handle: pyserve.DeploymentHandle, caller: FakeCaller
):
    response = handle.remote(1)
    [call] = caller.calls
    assert call.header.request_id == response.request_id
    assert not response.done()
    call.answer("x")
    assert "x" == await response
    assert response.done()


def test_a_thread_without_a_loop_uses_the_private_one(
    handle: pyserve.DeploymentHandle, caller: FakeCaller
):
    response = handle.remote(1)
    wait_until(lambda: caller.calls)
    caller.calls[0].answer("x")
    assert "x" == response.result(timeout_s=30)
    assert "x" == asyncio.run(_await(response))


async def _await(response: pyserve.DeploymentResponse) -> object:
    return await response


async def test_a_value_is_decoded_once(handle: pyserve.DeploymentHandle, caller: FakeCaller):
    response = handle.remote()
    caller.calls[0].answer([1])
    assert await response is await response


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (grpc.StatusCode.CANCELLED, RequestCancelled),
        (grpc.StatusCode.DEADLINE_EXCEEDED, RequestTimeout),
        (grpc.StatusCode.RESOURCE_EXHAUSTED, BackPressure),
        (grpc.StatusCode.UNAVAILABLE, DeploymentUnavailable),
        (grpc.StatusCode.UNIMPLEMENTED, SerializationError),
        (grpc.StatusCode.INTERNAL, RemoteError),
        (grpc.StatusCode.ABORTED, pyserve.Abort),
    ],
)
async def test_a_status_is_an_exception(
    handle: pyserve.DeploymentHandle,
    caller: FakeCaller,
    code: grpc.StatusCode,
    kind: type[Exception],
):
    response = handle.remote()
    caller.calls[0].fails(code, "the text")
    with pytest.raises(kind, match="the text") as caught:
        await response
    assert kind is type(caught.value)


async def test_a_refusal_says_how_plain_http_is_answered_also_from_further_away(
    handle: pyserve.DeploymentHandle, caller: FakeCaller
):
    refused, passed_on = handle.remote(), handle.remote()
    caller.calls[0].fails(grpc.StatusCode.RESOURCE_EXHAUSTED, "full")
    with pytest.raises(BackPressure) as caught:
        await refused
    assert (429, 2.0) == (caught.value.status_code, caught.value.retry_after_s)

    caught.value.retry_after_s = 9.0
    caller.calls[1].raises(caught.value)
    with pytest.raises(BackPressure) as caught:
        await passed_on
    assert (429, 9.0) == (caught.value.status_code, caught.value.retry_after_s)


async def test_an_exception_is_raised_each_time(
    handle: pyserve.DeploymentHandle, caller: FakeCaller
):
    response = handle.remote()
    caller.calls[0].raises(KeyError("k"))
    for _ in range(3):
        with pytest.raises(KeyError) as caught:
            await response
        depth = len(list(_frames(caught.value)))
    assert depth < 10


def _frames(error: BaseException):
    trace = error.__traceback__
    while trace is not None:
        yield trace
        trace = trace.tb_next


# --- cancellation ---------------------------------------------------------------------------


async def test_cancel_before_the_answer_wins(handle: pyserve.DeploymentHandle, caller: FakeCaller):
    response = handle.remote()
    response.cancel()
    assert response.cancelled()
    assert caller.calls[0].is_cancelled
    caller.calls[0].answer("late")
    with pytest.raises(RequestCancelled, match=r"Model\.__call__"):
        await response


async def test_cancel_from_another_thread(handle: pyserve.DeploymentHandle, caller: FakeCaller):
    response = handle.remote()
    await asyncio.to_thread(response.cancel)
    with pytest.raises(RequestCancelled):
        await response
    assert caller.calls[0].is_cancelled


async def test_a_call_that_never_starts_gives_its_chosen_place_back(
    handle: pyserve.DeploymentHandle, caller: FakeCaller
):
    first = handle.remote()
    async with handle.choose_replica() as selection:
        place = selection._reservation
        waiting = handle.dispatch(selection, first)
    assert isinstance(place, FakeReservation)
    assert not place.is_released
    waiting.cancel()
    assert place.is_released
    assert 1 == len(caller.calls)


@pytest.mark.parametrize("stream", [False, True])
async def test_an_answer_that_comes_after_the_mesh_is_gone_ends_the_call(
    handle: pyserve.DeploymentHandle, caller: FakeCaller, stream: bool
):
    """No other event will come, so all waiting callers have to be notified now."""
    response = handle.options(stream=stream).remote()
    attach(None)
    held = bytes((REFERENCE,)) + msgpack.packb(descriptor("key").to_wire())
    caller.calls[0]._deliver(MESSAGE if stream else DONE, held)
    with pytest.raises(MeshNotFound):
        await asyncio.wait_for(anext(response) if stream else response, 30)
    assert stream == caller.calls[0].is_cancelled


async def test_a_failure_that_cannot_be_rebuilt_ends_the_call(
    handle: pyserve.DeploymentHandle, caller: FakeCaller, monkeypatch: pytest.MonkeyPatch
):
    def rebuild(data: bytes) -> Exception:
        raise LookupError(data)

    monkeypatch.setattr("pyserve.api.handles.outgoing.rebuild", rebuild)
    response = handle.remote()
    caller.calls[0].fails(grpc.StatusCode.INTERNAL, "", ((FAILURE_KEY, b"failure"),))
    with pytest.raises(LookupError):
        await asyncio.wait_for(response, 30)


async def test_odd_notes_of_a_failure_leave_it(
    handle: pyserve.DeploymentHandle, caller: FakeCaller
):
    response = handle.remote()
    failure = msgpack.packb({"type": "builtins:ValueError", "text": "no", "notes": 5})
    caller.calls[0].fails(grpc.StatusCode.INTERNAL, "", ((FAILURE_KEY, failure),))
    with pytest.raises(ValueError, match="no"):
        await asyncio.wait_for(response, 30)


async def test_the_last_waiter_that_gives_up_cancels(
    handle: pyserve.DeploymentHandle, caller: FakeCaller
):
    response = handle.remote()
    first, second = (asyncio.create_task(_await(response)) for _ in range(2))
    await asyncio.sleep(0)
    first.cancel()
    await asyncio.wait([first])
    assert not caller.calls[0].is_cancelled
    second.cancel()
    await asyncio.wait([second])
    assert caller.calls[0].is_cancelled


async def test_a_dropped_response_is_not_cancelled(
    handle: pyserve.DeploymentHandle, caller: FakeCaller
):
    handle.remote()
    gc.collect()
    caller.calls[0].answer("nobody waits")
    await asyncio.sleep(0)
    assert not caller.calls[0].is_cancelled


def test_a_closed_loop_ends_its_calls_for_others(
    handle: pyserve.DeploymentHandle, caller: FakeCaller
):
    async def leave() -> Any:
        return handle.remote()

    response = asyncio.run(leave())
    caller.calls[0].receiver.abandon()
    with pytest.raises(RequestCancelled, match="loop on which the call was made"):
        response.result(timeout_s=30)
    response.cancel()


# --- what a call inherits ---------------------------------------------------------------------


@pytest.fixture
def request_now():
    request = Request(request_id="0123456789abcdef", deadline=time.monotonic() + 10)
    token = CURRENT.set(request)
    yield request
    CURRENT.reset(token)


async def test_a_child_inherits_id_deadline_and_cancellation(
    handle: pyserve.DeploymentHandle, caller: FakeCaller, request_now: Request
):
    response = handle.remote()
    handle.options(timeout_s=3).remote()
    handle.options(timeout_s=30).remote()
    assert request_now.request_id == response.request_id
    timeouts = [call.timeout_s for call in caller.calls]
    assert timeouts[0] is not None
    assert timeouts[2] is not None
    assert 9 < timeouts[0] <= 10
    assert 3 == timeouts[1]
    assert 9 < timeouts[2] <= 10
    request_now.cancel()
    assert [True] * 3 == [call.is_cancelled for call in caller.calls]


async def test_what_tidies_up_in_the_loop_after_the_cancellation_may_call(
    handle: pyserve.DeploymentHandle, caller: FakeCaller, request_now: Request
):
    """A thread does not see that it was cancelled, so its calls end at once."""
    request_now.cancel()
    response = handle.remote()
    assert request_now.request_id == response.request_id
    assert (None, False) == (caller.calls[0].timeout_s, caller.calls[0].is_cancelled)
    assert (await asyncio.to_thread(handle.remote)).cancelled()


async def test_a_detached_call_inherits_the_id_only(
    handle: pyserve.DeploymentHandle, caller: FakeCaller, request_now: Request
):
    response = handle.options(detached=True).remote()
    request_now.cancel()
    assert request_now.request_id == response.request_id
    assert (None, False) == (caller.calls[0].timeout_s, caller.calls[0].is_cancelled)


async def test_the_model_id_is_not_inherited(handle: pyserve.DeploymentHandle, caller: FakeCaller):
    token = CURRENT.set(Request(multiplexed_model_id="m"))
    handle.remote()
    CURRENT.reset(token)
    assert "" == caller.calls[0].route.model_id


async def test_request_ids_of_any_length_arrive(
    handle: pyserve.DeploymentHandle, caller: FakeCaller
):
    token = CURRENT.set(Request(request_id="from-a-client/ä"))
    handle.remote(1)
    CURRENT.reset(token)
    [call] = caller.calls
    assert "from-a-client/ä" == call.header.request_id
    assert ([1], {}) == call.arguments()


@pytest.mark.parametrize("size", [10, 1_000, 100_000, 3_000_000])
@pytest.mark.parametrize("options", [{}, {"response_serialization": "msgpack"}], ids=repr)
async def test_bodies_begin_at_multiples_of_sixteen(
    handle: pyserve.DeploymentHandle, caller: FakeCaller, size: int, options: dict[str, Any]
):
    """So that arrays may be views of a message; the codecs align them inside of the body."""
    handle.options(**options).remote(bytes(size))
    [call] = caller.calls
    _, _, body = read_request(call.message)
    assert 0 == (len(call.message) - len(body)) % 16


# --- blocking ---------------------------------------------------------------------------------


async def test_result_refuses_to_block_a_loop(handle: pyserve.DeploymentHandle):
    with pytest.raises(UsageError, match="await response"):
        handle.remote().result()
    with pytest.raises(UsageError, match="async for"):
        iter(handle.options(stream=True).remote())
    with pytest.raises(UsageError, match="await response"):
        pyserve.get(handle.remote())


@pytest.mark.parametrize("timeout_s", [float("nan"), -1, -0.001, "1", True, [1]], ids=repr)
def test_a_wait_that_is_no_number_of_seconds_is_refused(
    handle: pyserve.DeploymentHandle, timeout_s: Any
):
    response = handle.remote()
    for wait in (
        lambda: response.result(timeout_s),
        lambda: pyserve.get(response, timeout=timeout_s),
        lambda: pyserve.put(1).get(timeout_s),
    ):
        with pytest.raises(OptionError, match=re.escape(f"is {timeout_s!r}; use a number of sec")):
            wait()


def test_a_wait_of_nothing_takes_what_is_here(handle: pyserve.DeploymentHandle, caller: FakeCaller):
    response = handle.remote()
    wait_until(lambda: caller.calls)
    with pytest.raises(TimeoutError, match="no answer within 0 s"):
        response.result(0)
    caller.calls[0].answer("x")
    wait_until(response.done)
    assert "x" == response.result(timeout_s=0)


@pytest.mark.parametrize("timeout_s", [1e300, 10**400, float("inf")], ids=["float", "int", "inf"])
def test_a_wait_longer_than_a_lock_can_wait_is_cut(
    handle: pyserve.DeploymentHandle, caller: FakeCaller, timeout_s: float
):
    response = handle.remote()
    wait_until(lambda: caller.calls)
    timer = threading.Timer(0.02, caller.calls[0].answer, ["x"])
    timer.start()
    assert "x" == response.result(timeout_s)
    timer.join()


@pytest.mark.slow
def test_ctrl_c_interrupts_result_at_once(handle: pyserve.DeploymentHandle):
    response = handle.remote()
    timer = threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT))
    begun = time.monotonic()
    # Where the tests run in the background of a shell it is ignored.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):  # noqa: PT012  # It may come at once.
            timer.start()
            response.result(timeout_s=30)
    finally:
        timer.join()
        signal.signal(signal.SIGINT, before)
    assert time.monotonic() - begun < 15


# --- streams ----------------------------------------------------------------------------------


async def test_items_give_credit_back_when_they_are_taken(
    handle: pyserve.DeploymentHandle, caller: FakeCaller
):
    stream = handle.options(stream=True).remote()
    [call] = caller.calls
    for number in range(3):
        call.send(number)
    await asyncio.sleep(0)
    assert 0 == call.taken_bytes
    assert 0 == await anext(stream)
    assert call.taken_bytes > 0
    call.end()
    assert [1, 2] == [item async for item in stream]


async def test_a_failed_stream_gives_its_items_first(
    handle: pyserve.DeploymentHandle, caller: FakeCaller
):
    stream = handle.options(stream=True).remote()
    caller.calls[0].send(1)
    caller.calls[0].raises(ValueError("broken"))
    assert 1 == await anext(stream)
    with pytest.raises(ValueError, match="broken"):
        await anext(stream)
    with pytest.raises(StopAsyncIteration):
        await anext(stream)


class EmptyError(Exception):
    """False, as whatever has a length of 0."""

    def __len__(self) -> int:
        return 0


async def test_a_stream_that_fails_with_a_false_exception_raises_it(
    handle: pyserve.DeploymentHandle, caller: FakeCaller
):
    stream = handle.options(stream=True).remote()
    caller.calls[0].raises(EmptyError("broken"))
    with pytest.raises(EmptyError, match="broken"):
        await anext(stream)
    with pytest.raises(StopAsyncIteration):
        await anext(stream)


def test_a_thread_that_iterates_gets_a_false_exception(
    handle: pyserve.DeploymentHandle, caller: FakeCaller
):
    stream = handle.options(stream=True).remote()
    wait_until(lambda: caller.calls)
    caller.calls[0].raises(EmptyError("broken"))
    with pytest.raises(EmptyError, match="broken"):
        next(stream)


async def test_a_dropped_stream_is_cancelled(handle: pyserve.DeploymentHandle, caller: FakeCaller):
    stream = handle.options(stream=True).remote()
    del stream
    gc.collect()
    assert caller.calls[0].is_cancelled


async def test_a_dropped_stream_that_has_ended_is_not(
    handle: pyserve.DeploymentHandle, caller: FakeCaller
):
    stream = handle.options(stream=True).remote()
    caller.calls[0].end()
    assert [] == [item async for item in stream]
    del stream
    gc.collect()
    assert not caller.calls[0].is_cancelled


def test_a_thread_iterates(handle: pyserve.DeploymentHandle, caller: FakeCaller):
    stream = handle.options(stream=True).remote()
    wait_until(lambda: caller.calls)

    def produce() -> None:
        for number in range(3):
            caller.calls[0].send(number)
        caller.calls[0].end()

    producer = threading.Thread(target=produce)
    producer.start()
    assert [0, 1, 2] == list(stream)
    producer.join()


async def test_held_answers_are_released_with_their_last_reference(
    handle: pyserve.DeploymentHandle, caller: FakeCaller, mesh: FakeMesh
):
    """Also when nobody has ever asked for the answer."""
    references = mesh.references
    handle.remote()
    caller.calls[0].answer_held(descriptor("unread"))
    await eventually(lambda: ["unread"] == references.released)
    response = handle.remote()
    reference = response._to_object_ref_sync()
    caller.calls[1].answer_held(descriptor("kept"))
    await eventually(response.done)
    del response
    gc.collect()
    assert ["unread"] == references.released
    del reference
    gc.collect()
    assert ["unread", "kept"] == references.released
