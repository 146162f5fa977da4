"""Inputs of calls: when they are waited for, and how they travel."""

from __future__ import annotations

import asyncio
import gc

import pytest

import pyserve
from pyserve.errors import RequestCancelled, RequestTimeout, UsageError
from tests.support.waiting import eventually, wait_until
from tests.unit.api.handles.fakes import FakeCaller, FakeMesh, descriptor

LARGE = 100_000


async def test_a_call_waits_for_its_inputs(handle: pyserve.DeploymentHandle, caller: FakeCaller):
    first, second = handle.remote("first"), handle.remote("second")
    outer = handle.remote(first, 5, key=second)
    await asyncio.sleep(0)
    assert 2 == len(caller.calls)
    caller.calls[1].answer(2)
    caller.calls[0].answer(1)
    await eventually(lambda: 3 == len(caller.calls))
    assert ([1, 5], {"key": 2}) == caller.calls[2].arguments()
    caller.calls[2].answer("done")
    assert "done" == await outer


def test_a_script_waits_in_the_background(handle: pyserve.DeploymentHandle, caller: FakeCaller):
    outer = handle.remote(handle.remote())
    wait_until(lambda: caller.calls)
    caller.calls[0].answer(1)
    wait_until(lambda: 2 == len(caller.calls))
    caller.calls[1].answer(2)
    assert 2 == outer.result(timeout_s=30)


@pytest.mark.parity("S-07")
async def test_held_inputs_travel_as_descriptors(
    handle: pyserve.DeploymentHandle, caller: FakeCaller, mesh: FakeMesh
):
    """They stay held until the call that needs them has ended."""
    inner = handle.remote()
    outer = handle.remote(inner, x=inner)
    caller.calls[0].answer_held(descriptor("large"))
    del inner
    await eventually(lambda: 2 == len(caller.calls))
    call = caller.calls[1]
    assert ([None], {"x": None}) == call.arguments()
    wire = descriptor("large").to_wire()
    assert ((0, wire), ("x", wire)) == call.header.references
    gc.collect()
    assert [] == mesh.references.released
    call.answer(1)
    assert 1 == await outer
    gc.collect()
    assert ["large"] == mesh.references.released


@pytest.mark.parity("S-76")
async def test_by_value_handles_fetch_and_send(
    handle: pyserve.DeploymentHandle, caller: FakeCaller, mesh: FakeMesh
):
    reference = pyserve.put(bytes(LARGE))
    handle.options(_by_reference=False).remote(reference)
    await eventually(lambda: caller.calls)
    assert ([bytes(LARGE)], {}) == caller.calls[0].arguments()
    assert () == caller.calls[0].header.references


async def test_the_first_failing_input_fails_the_call(
    handle: pyserve.DeploymentHandle, caller: FakeCaller
):
    inputs = [handle.remote(number) for number in range(3)]
    outer = handle.remote(*inputs)
    await asyncio.sleep(0)
    caller.calls[1].raises(KeyError("k"))
    with pytest.raises(KeyError, match="k"):
        await outer
    assert [False, False, False] == [call.is_cancelled for call in caller.calls]
    assert 3 == len(caller.calls)


async def test_cancelling_a_waiting_call_leaves_its_inputs_alone(
    handle: pyserve.DeploymentHandle, caller: FakeCaller
):
    inner = handle.remote()
    outer = handle.remote(inner)
    await asyncio.sleep(0)
    outer.cancel()
    with pytest.raises(RequestCancelled):
        await outer
    caller.calls[0].answer(1)
    assert 1 == await inner
    assert 1 == len(caller.calls)


async def test_a_deadline_covers_the_wait_for_inputs(
    handle: pyserve.DeploymentHandle, caller: FakeCaller
):
    inner = handle.remote()
    outer = handle.options(timeout_s=0.02).remote(inner)
    with pytest.raises(RequestTimeout, match="inputs"):
        await outer
    later = handle.options(timeout_s=10).remote(inner)
    await asyncio.sleep(0.02)
    caller.calls[0].answer(1)
    await eventually(lambda: 2 == len(caller.calls))
    left_s = caller.calls[1].timeout_s
    assert left_s is not None
    assert 5 < left_s <= 9.98
    later.cancel()


@pytest.mark.parity("G-49")
async def test_nested_responses_and_streams_are_refused(
    handle: pyserve.DeploymentHandle, caller: FakeCaller
):
    with pytest.raises(UsageError, match="argument of its own"):
        handle.remote([handle.remote()])
    with pytest.raises(UsageError, match="a stream cannot be passed"):
        await handle.remote(handle.options(stream=True).remote())
    with pytest.raises(UsageError, match="a stream cannot be passed"):
        handle.remote({"stream": handle.options(stream=True).remote()})


async def test_small_values_travel_inside_of_their_reference(
    handle: pyserve.DeploymentHandle, caller: FakeCaller, mesh: FakeMesh
):
    handle.remote([pyserve.put("small")])
    [[reference]], _ = caller.calls[0].arguments()
    assert isinstance(reference, pyserve.ObjectRef)
    assert "small" == await reference
    assert {} == mesh.references.values


async def test_a_nested_reference_is_waited_for(
    handle: pyserve.DeploymentHandle, caller: FakeCaller
):
    pending = handle.remote()._to_object_ref_sync()
    outer = handle.remote({"key": pending})
    await asyncio.sleep(0)
    assert 1 == len(caller.calls)
    caller.calls[0].answer_held(descriptor("large"))
    await eventually(lambda: 2 == len(caller.calls))
    [found], _ = caller.calls[1].arguments()
    assert descriptor("large") == found["key"].lease().descriptor
    outer.cancel()


async def test_a_large_value_is_held_once_and_freed_with_its_reference(
    handle: pyserve.DeploymentHandle, caller: FakeCaller, mesh: FakeMesh
):
    reference = pyserve.put(bytes(LARGE))
    assert {} == mesh.references.values
    first, second = handle.remote(reference), handle.remote([reference])
    await eventually(lambda: 2 == len(caller.calls))
    assert ["key0"] == list(mesh.references.values)
    for call in caller.calls:
        call.answer(None)
    assert [None, None] == [await first, await second]
    assert [] == mesh.references.released
    del reference
    gc.collect()
    assert ["key0"] == mesh.references.released


@pytest.mark.parity("S-76")
async def test_large_arguments_go_by_reference_on_one_machine(
    handle: pyserve.DeploymentHandle, caller: FakeCaller, mesh: FakeMesh
):
    """By default very large ones only; with True all from 64 KiB on; with False none."""
    small, large, huge = bytes(1_000), bytes(LARGE), bytearray(9 * 2**20)

    async def held(by_reference: bool | None, value: object) -> bool:
        before = len(caller.calls)
        handle.options(_by_reference=by_reference).remote(value, key=value)
        await eventually(lambda: before + 1 == len(caller.calls))
        return 2 == len(caller.calls[-1].header.references)

    assert [False, False, True] == [await held(None, each) for each in (small, large, huge)]
    assert [False, True, True] == [await held(True, each) for each in (small, large, huge)]
    assert [False, False, False] == [await held(False, each) for each in (small, large, huge)]
    caller.near = False
    assert not await held(True, huge)


@pytest.mark.parity("S-39")
async def test_a_stream_of_references_brings_nothing_here(
    handle: pyserve.DeploymentHandle, caller: FakeCaller, mesh: FakeMesh
):
    stream = handle.options(stream=True).remote()
    references = await stream._to_object_ref_gen()
    [call] = caller.calls
    call.send("small")
    call.end()
    found = [each async for each in references]
    assert ["small"] == [await each for each in found]


def test_get_takes_references_and_responses(
    handle: pyserve.DeploymentHandle, caller: FakeCaller, mesh: FakeMesh
):
    response = handle.remote()
    wait_until(lambda: caller.calls)
    caller.calls[0].answer(1)
    assert [1, 2] == pyserve.get([response, pyserve.put(2)])
    assert 1 == pyserve.get(response._to_object_ref_sync())
