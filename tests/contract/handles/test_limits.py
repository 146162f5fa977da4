"""How many calls run, wait, and are refused."""

import asyncio

import pytest

from pyserve.exceptions import BackPressure, RequestTimeout
from tests.support.waiting import eventually


@pytest.fixture
async def door(handles):
    handle = handles("Door")
    await handle.begin_again.remote()
    yield handle
    await handle.open.remote()


@pytest.fixture
def narrow(handles):
    return handles("Narrow")


async def _inside(door, count):
    async def there() -> bool:
        inside, _, _ = await door.look.remote()
        return bool(inside == count)

    await eventually(there, what=f"{count} calls are inside")


async def test_no_more_than_the_limit_run_and_the_others_wait_in_order(narrow, door):
    calls = [narrow.enter.remote(str(number)) for number in range(5)]
    await _inside(door, 2)

    await door.open.remote()

    assert [str(number) for number in range(5)] == await asyncio.gather(*calls)
    _, inside_max, entered = await door.look.remote()
    assert 2 == inside_max
    assert ["0", "1"] == sorted(entered[:2])


@pytest.mark.parity("G-04")
async def test_a_full_queue_refuses(narrow, door):
    calls = [narrow.enter.remote(str(number)) for number in range(5)]
    await _inside(door, 2)

    with pytest.raises(BackPressure):
        await narrow.enter.remote("one too many")

    await door.open.remote()
    await asyncio.gather(*calls)


async def test_a_deadline_passes_in_the_queue_and_the_call_never_runs(narrow, door):
    calls = [narrow.enter.remote(str(number)) for number in range(2)]
    await _inside(door, 2)

    with pytest.raises(RequestTimeout):
        await narrow.options(timeout_s=0.2).enter.remote("late")

    await door.open.remote()
    await asyncio.gather(*calls)
    assert "late" not in (await door.look.remote())[2]


async def test_a_cancelled_call_leaves_the_queue(narrow, door):
    calls = [narrow.enter.remote(str(number)) for number in range(4)]
    await _inside(door, 2)

    calls[2].cancel()

    await door.open.remote()
    assert ["0", "1", "3"] == await asyncio.gather(calls[0], calls[1], calls[3])
    assert "2" not in (await door.look.remote())[2]


async def test_chained_calls_to_one_place_do_not_block_each_other(handles):
    """The second call is offered when its input is there, so one place is enough."""
    single = handles("Single")

    assert [2] * 20 == await asyncio.gather(*(single.remote(single.remote(0)) for _ in range(20)))
