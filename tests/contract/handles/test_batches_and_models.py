"""Batched methods and multiplexed models behind handles."""

import asyncio

import pytest

from tests.contract.handles.apps import Refused


async def test_single_values_go_in_and_come_out_and_batches_form_between(handles):
    batches = handles("Batches")
    await batches.seen.remote()

    answers = await asyncio.gather(*(batches.double.remote(number) for number in range(8)))

    assert [number * 2 for number in range(8)] == answers
    assert [4, 4] == [len(numbers) for _, numbers in await batches.seen.remote()]


async def test_one_bad_item_fails_alone(handles):
    batches = handles("Batches")

    found = await asyncio.gather(
        *(batches.double.remote(number) for number in (1, -1, 2, 3)), return_exceptions=True
    )

    assert [2, 4, 6] == [each for each in found if not isinstance(each, Exception)]
    assert isinstance(found[1], Refused)


@pytest.mark.parity("S-15")
async def test_streams_join_their_batch_when_they_are_called(handles):
    """If the second joined when it is read, the first would wait for it for half a minute."""
    assert [[0, 1], [0, 2]] == await asyncio.wait_for(handles("Batches").one_by_one.remote(), 20)


@pytest.mark.parity("S-38")
async def test_the_stream_of_a_batch_may_be_returned(handles):
    """By a method on a thread, and by one on the loop; the two fill a batch."""
    streaming = handles("Batches").options(stream=True)
    streams = streaming.return_steps.remote(1), streaming.await_steps.remote(2)

    found = await asyncio.wait_for(asyncio.gather(*map(_read, streams)), 20)

    assert [[0, 1], [0, 2]] == found


async def _read(stream):
    return [item async for item in stream]


async def test_a_batch_has_one_model(handles):
    batches = handles("Batches")
    await batches.seen.remote()

    await asyncio.gather(
        *(
            batches.options(multiplexed_model_id=f"m{number % 2}").double.remote(number)
            for number in range(8)
        )
    )

    seen = sorted(await batches.seen.remote())
    assert [("m0", [0, 2, 4, 6]), ("m1", [1, 3, 5, 7])] == seen


async def test_models_stay_loaded_up_to_their_number(handles):
    models = handles("Models")
    for model in ("a", "b", "c", "b", "a"):
        assert model.upper() == await models.options(multiplexed_model_id=model).remote()

    assert ["a", "b", "c", "a"] == await models.loads.remote()


async def test_a_call_without_a_model_says_so(handles):
    with pytest.raises(Exception, match="model"):
        await handles("Models").remote()
