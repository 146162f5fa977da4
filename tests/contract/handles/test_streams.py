"""Calls with a stream of answers."""

import asyncio

import pytest

from pyserve.errors import RequestCancelled
from tests.contract.handles.apps import Refused
from tests.support.waiting import eventually


async def test_items_come_in_order(echo, front):
    streaming = echo.options(stream=True)
    assert list(range(100)) == [n async for n in streaming.numbers.remote(100)]
    assert list(range(100)) == [n async for n in streaming.plain_numbers.remote(100)]
    assert [0, 10, 20] == [n async for n in front.relay.options(stream=True).remote(3)]
    assert [] == [n async for n in streaming.numbers.remote(0)]


def test_threads_iterate_too(echo):
    assert [0, 1, 2] == list(echo.numbers.options(stream=True).remote(3))


async def test_the_first_item_comes_before_the_generator_ends(echo):
    stream = echo.wait_streaming.options(stream=True).remote("early")

    assert 0 == await anext(stream)

    assert "early" not in await echo.ended.remote()
    stream.cancel()
    await _has_ended(echo, "early")


async def test_an_exception_comes_after_the_items_before_it(echo):
    stream = echo.fail_after.options(stream=True).remote(3)

    assert [0, 1, 2] == [await anext(stream) for _ in range(3)]
    with pytest.raises(Refused, match="enough"):
        await anext(stream)


async def test_an_exception_comes_once_and_a_cancellation_at_every_step(echo):
    """As of any generator: who catches it at a step does not loop for ever."""
    stream = echo.fail_after.options(stream=True).remote(0)
    with pytest.raises(Refused):
        await anext(stream)
    assert [] == [each async for each in stream]

    references = await echo.fail_after.options(stream=True).remote(0)._to_object_ref_gen()
    with pytest.raises(Refused):
        await anext(references)
    assert [] == [each async for each in references]

    stream = echo.endless.options(stream=True).remote("cancelled")
    stream.cancel()
    for _ in range(2):
        with pytest.raises(RequestCancelled):
            await anext(stream)


def test_an_exception_comes_once_to_threads_too(echo):
    stream = iter(echo.fail_after.options(stream=True).remote(1))
    assert 0 == next(stream)
    with pytest.raises(Refused):
        next(stream)
    assert [] == list(stream)


async def test_a_slow_reader_slows_the_generator(echo):
    """A stream runs ahead of its reader within a bound: in a mesh, by a few windows of 64 KiB."""
    stream = echo.endless.options(stream=True).remote("slow reader")
    for _ in range(3):
        await anext(stream)

    made = -1
    while made != (made := await echo.count_made.remote()):
        await asyncio.gather(*(echo.say.remote("turn") for _ in range(20)))

    assert made < 2_000
    stream.cancel()
    await _has_ended(echo, "slow reader")


@pytest.mark.parity("S-39")
async def test_references_of_a_stream_go_into_other_calls(echo):
    """The items stay at their producer; the caller has nothing but their addresses."""
    stream = echo.large_pieces.options(stream=True).remote(3)
    references = [each async for each in await stream._to_object_ref_gen()]

    leases = [each.lease() for each in references]
    assert all(lease is not None and lease.descriptor.size_bytes > 200_000 for lease in leases)
    assert [(200_000, 0), (200_000, 1), (200_000, 2), (0, 0)] == await echo.sizes.remote(
        *references
    )
    assert [200_000] * 3 == [len(await each) for each in references]


async def _has_ended(echo, name):
    async def ended() -> bool:
        return name in await echo.ended.remote()

    await eventually(ended, what=f"{name!r} has ended in the deployment")
