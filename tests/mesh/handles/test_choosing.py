"""Calls to a chosen replica, and to all of them."""

from __future__ import annotations

import asyncio

import pytest

import pyserve
from pyserve.errors import UsageError
from tests.mesh.handles.apps import HomeMadeError
from tests.support.waiting import eventually

pytestmark = pytest.mark.slow


@pytest.mark.parity("G-51")
async def test_a_call_goes_to_the_replica_that_was_chosen(
    several: pyserve.DeploymentHandle,
) -> None:
    for _ in range(5):
        async with several.choose_replica() as selection:
            assert selection.replica_id == await several.dispatch(selection)


@pytest.mark.parity("G-51")
async def test_a_chosen_place_is_taken_until_it_is_used_or_given_back(session: object) -> None:
    """The only place of a replica with room for one call."""
    one = pyserve.DeploymentHandle("OneAtATime", "default")
    async with one.choose_replica() as selection:
        waiting = one.remote(1)
        await asyncio.sleep(0.1)
        assert not waiting.done()
        assert 11 == await one.dispatch(selection, 10)
    assert 2 == await waiting
    async with one.choose_replica():
        waiting = one.remote(3)
    assert 4 == await waiting
    with pytest.raises(pyserve.RequestTimeout):
        async with one.choose_replica(), one.options(timeout_s=0.05).choose_replica():
            pass


@pytest.mark.parity("G-51")
async def test_a_selection_serves_once_and_its_deployment_only(
    several: pyserve.DeploymentHandle, worker: pyserve.DeploymentHandle
) -> None:
    async with several.choose_replica() as selection:
        with pytest.raises(UsageError, match="is for default/Several"):
            worker.dispatch(selection)
        await several.dispatch(selection)
        with pytest.raises(UsageError, match="choose one for"):
            several.dispatch(selection)


@pytest.mark.parity("G-52")
async def test_a_broadcast_reaches_every_replica(several: pyserve.DeploymentHandle) -> None:
    noted = await several.broadcast("note", 7)
    assert [[7], [7], [7]] == noted
    results = several.broadcast("__call__")
    assert 3 == len(results.responses)
    for replica_id, response in results.responses.items():
        assert replica_id == await response


@pytest.mark.parity("G-52")
def test_a_script_broadcasts(several: pyserve.DeploymentHandle) -> None:
    assert 3 == len(set(several.broadcast("__call__").result(timeout_s=30)))


@pytest.mark.parity("G-52")
async def test_a_broadcast_does_not_wait_for_room(session: object) -> None:
    """One call fills the replica, the broadcast runs beside it."""
    full = pyserve.DeploymentHandle("OneAtATime", "default")
    async with full.choose_replica() as selection:
        assert [8] == await asyncio.wait_for(full.broadcast("__call__", 7), 30)
        assert 1 == await full.dispatch(selection, 0)


@pytest.mark.parity("G-52")
async def test_what_some_replicas_raise_may_stand_for_their_results(
    several: pyserve.DeploymentHandle,
) -> None:
    found = several.broadcast("__call__").responses
    first, *others = list(found)
    results = several.broadcast("fail_unless", first)
    answered = dict(
        zip(results.responses, await results.results_async(return_exceptions=True), strict=True)
    )
    assert first == answered[first]
    assert [7, 7] == [answered[each].number for each in others]
    with pytest.raises(HomeMadeError):
        await results.results_async()


async def test_flush_lets_waiting_batches_run(session: object) -> None:
    """They would wait for a minute; whether all calls had come, nobody can know but by trying."""
    batched = pyserve.DeploymentHandle("Patient", "default")
    calls = [batched.remote(number) for number in range(3)]

    async def all_done() -> bool:
        await batched.flush()
        return all(call.done() for call in calls)

    await eventually(all_done)
    assert [0, 2, 4] == await asyncio.gather(*calls)
