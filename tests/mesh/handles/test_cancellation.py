"""Who ends a call, and what ends with it."""

from __future__ import annotations

import asyncio

import pytest

import pyserve
from tests.support.waiting import eventually

pytestmark = pytest.mark.slow


async def _running(worker: pyserve.DeploymentHandle, count: int) -> None:
    async def reached() -> bool:
        return bool(count == (await worker.counts.remote())["running"])

    await eventually(reached, what=f"{count} calls run")


@pytest.mark.parity("G-55")
async def test_a_cancelled_call_ends_at_both_sides(worker: pyserve.DeploymentHandle) -> None:
    before = (await worker.counts.remote())["cancelled"]
    response = worker.wait.remote()
    await _running(worker, 1)
    response.cancel()
    assert response.cancelled()
    with pytest.raises(pyserve.RequestCancelled):
        await response
    await _running(worker, 0)
    assert before + 1 == (await worker.counts.remote())["cancelled"]


@pytest.mark.parity("G-55")
def test_a_script_cancels(worker: pyserve.DeploymentHandle) -> None:
    response = worker.wait.remote()
    response.cancel()
    assert response.cancelled()
    with pytest.raises(pyserve.RequestCancelled):
        response.result(timeout_s=30)


async def test_cancel_after_the_end_changes_nothing(worker: pyserve.DeploymentHandle) -> None:
    response = worker.remote(1)
    assert 1 == await response
    response.cancel()
    assert not response.cancelled()
    assert 1 == await response


async def test_a_cancelled_task_cancels_the_call_that_it_awaits(
    worker: pyserve.DeploymentHandle,
) -> None:
    """The task sees its own CancelledError, ``asyncio.timeout`` its TimeoutError."""
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.1):
            await worker.wait.remote()
    await _running(worker, 0)

    async def ask() -> None:
        await worker.wait.remote()

    task = asyncio.create_task(ask())
    await _running(worker, 1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await _running(worker, 0)


async def test_a_call_that_others_await_survives_one_that_gives_up(
    worker: pyserve.DeploymentHandle,
) -> None:
    response = worker.wait.remote("kept")

    async def ask() -> str:
        return str(await response)

    first, second = asyncio.create_task(ask()), asyncio.create_task(ask())
    await _running(worker, 1)
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    await worker.open.remote()
    assert "kept" == await second


async def test_dropping_a_response_lets_the_call_go_on(worker: pyserve.DeploymentHandle) -> None:
    worker.wait.remote()
    await _running(worker, 1)
    await worker.open.remote()
    await _running(worker, 0)


@pytest.mark.parity("G-55")
@pytest.mark.parametrize("shielded", [False, True], ids=["awaited", "not awaited"])
async def test_children_end_with_a_cancelled_parent(
    worker: pyserve.DeploymentHandle, chief: pyserve.DeploymentHandle, shielded: bool
) -> None:
    response = chief.child_waits.remote(shielded=shielded)
    await _running(worker, 1)
    response.cancel()
    await _running(worker, 0)


@pytest.mark.parity("G-55")
async def test_detached_children_outlive_their_parent(
    worker: pyserve.DeploymentHandle, chief: pyserve.DeploymentHandle
) -> None:
    """A child whose result the handler awaits is cancelled by that wait, others are not."""
    response = chief.child_waits.remote(detached=True, shielded=True)
    await _running(worker, 1)
    response.cancel()
    with pytest.raises(pyserve.RequestCancelled):
        await response
    await chief.remote(1)
    assert 1 == (await worker.counts.remote())["running"]
    await worker.open.remote()
    await _running(worker, 0)


async def test_the_normal_end_of_a_parent_cancels_nothing(
    worker: pyserve.DeploymentHandle, chief: pyserve.DeploymentHandle
) -> None:
    await chief.leaves_child.remote()
    await _running(worker, 1)
    await worker.open.remote()
    await _running(worker, 0)
