"""Streams of methods that return a generator, as a method does that passes one on."""

import asyncio

import pytest

import pyserve
from pyserve.exceptions import KindError
from tests.contract.handles.apps import Refused
from tests.support.waiting import eventually


@pytest.fixture
def returning(handles):
    return handles("Returning")


@pytest.mark.parity("S-38")
@pytest.mark.parametrize(
    "method",
    ["return_numbers", "return_plain_numbers", "await_numbers", "await_plain_numbers"],
)
async def test_what_a_returned_generator_yields_is_streamed(returning, method):
    streaming = getattr(returning, method).options(stream=True)

    assert list(range(300)) == [number async for number in streaming.remote(300)]
    assert [] == [number async for number in streaming.remote(0)]


@pytest.mark.parity("S-38")
async def test_any_iterator_is_a_stream_and_so_is_that_of_another_call(returning, echo):
    streaming = returning.options(stream=True)

    assert [1, 2] == [number async for number in streaming.return_an_iterator.remote()]
    assert [0, 1, 2] == [number async for number in streaming.relay_through.remote(echo, 3)]


async def test_the_first_item_comes_early_and_a_cancel_closes_the_generator(returning):
    stream = returning.return_waiting.options(stream=True).remote("left")

    assert 0 == await anext(stream)

    stream.cancel()
    await _has_ended(returning, "left")


async def test_an_exception_comes_after_the_items_before_it(returning):
    stream = returning.return_failing.options(stream=True).remote(2)

    assert [0, 1] == [await anext(stream) for _ in range(2)]
    with pytest.raises(Refused, match="enough"):
        await anext(stream)


@pytest.mark.parametrize(
    "method", ["return_endless", "return_endless_on_a_thread", "await_endless_on_a_thread"]
)
async def test_a_slow_reader_slows_a_returned_generator(returning, echo, method):
    """A returned stream runs ahead of its reader within a bound, as if its method yielded."""
    stream = getattr(returning, method).options(stream=True).remote(method)
    for _ in range(3):
        await anext(stream)

    made = -1
    while made != (made := await returning.count_made.remote()):
        await asyncio.gather(*(echo.say.remote("turn") for _ in range(20)))

    assert made < 2_000
    stream.cancel()
    await _has_ended(returning, method)


async def test_the_timeout_of_a_method_holds_for_the_generator_that_it_returns(returning):
    stream = returning.return_limited.options(stream=True).remote("limited")

    assert 0 == await anext(stream)
    with pytest.raises(pyserve.Abort, match=r"took longer than 0\.5 s"):
        await anext(stream)
    await _has_ended(returning, "limited")


@pytest.mark.parity("S-38")
@pytest.mark.parametrize("method", ["return_a_list", "await_a_list"])
async def test_a_stream_of_a_method_that_returns_none_is_refused(returning, method):
    stream = getattr(returning, method).options(stream=True).remote()

    with pytest.raises(TypeError, match=rf"{method} has returned list, no generator; leave"):
        await anext(stream)


@pytest.mark.parity("S-38")
@pytest.mark.parametrize("method", ["return_numbers", "await_plain_numbers", "numbers"])
async def test_a_generator_must_be_asked_for_as_a_stream(returning, method):
    """Whether the method yields itself, or returns what another one yields."""
    with pytest.raises(TypeError, match=rf"{method} .*call it with \.options\(stream=True\)"):
        await getattr(returning, method).remote(3)
    with pytest.raises(KindError):
        await getattr(returning, method).remote(3)


async def _has_ended(handle, name):
    async def ended() -> bool:
        return name in await handle.ended.remote()

    await eventually(ended, what=f"{name!r} has ended in the deployment")
