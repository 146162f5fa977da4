"""Results that go into other calls: inline, by reference, one by one and chunk by chunk."""

from __future__ import annotations

import asyncio
import time

import psutil
import pytest

import pyserve
from pyserve.api.context import attached
from pyserve.errors import UsageError
from tests.mesh.handles.apps import HomeMadeError
from tests.support.waiting import eventually

pytestmark = pytest.mark.slow

MIB = 2**20
# Goes by reference without another word.
LARGE = 9 * MIB


@pytest.mark.parity("S-07")
async def test_a_response_is_an_argument(worker: pyserve.DeploymentHandle) -> None:
    """Positional and named; small answers come along with the call."""
    assert 3 == await worker.add.remote(worker.remote(1), two=worker.remote(2))
    assert "int" == await worker.kind_of.remote(worker.remote(1))


@pytest.mark.parity("S-07")
def test_a_script_chains(worker: pyserve.DeploymentHandle) -> None:
    assert 10 == worker.size_of.remote(worker.blob.remote(10)).result(timeout_s=30)
    assert LARGE == worker.size_of.remote(worker.blob.remote(LARGE)).result(timeout_s=30)


@pytest.mark.parity("S-07")
@pytest.mark.parity("S-75")
async def test_large_values_do_not_travel_through_the_caller(
    worker: pyserve.DeploymentHandle, several: pyserve.DeploymentHandle
) -> None:
    """The caller neither receives nor maps 64 MiB that go from one replica to another."""
    size = 64 * MIB
    response = worker.blob.remote(size)
    assert 1 == await worker.add.remote(1)
    before = psutil.Process().memory_info()
    assert size == await several.size_of.remote(response)
    after = psutil.Process().memory_info()
    assert after.rss - before.rss < size / 8
    # A caller that awaits it gets it all the same.
    assert size == len(await response)


@pytest.mark.parity("S-07")
async def test_the_call_is_sent_when_its_inputs_are_there(
    worker: pyserve.DeploymentHandle, session: object
) -> None:
    """With room for one call, an outer call that came first would wait for ever."""
    one = pyserve.DeploymentHandle("OneAtATime", "default").options(timeout_s=20)
    assert 3 == await one.remote(one.remote(one.remote(0)))


@pytest.mark.parity("S-41")
async def test_many_inputs_keep_their_order(worker: pyserve.DeploymentHandle) -> None:
    """The later ones are ready first, and every other one is large."""
    delays = [0.2, 0.1, 0.0]
    assert delays == await worker.gather.remote(*(worker.sleep.remote(each) for each in delays))
    sizes = [10, LARGE] * 4
    parts = await worker.gather.remote(
        *(worker.blob.remote(size, byte) for byte, size in enumerate(sizes))
    )
    assert [(size, byte) for byte, size in enumerate(sizes)] == [
        (len(part), part[0]) for part in parts
    ]


@pytest.mark.parity("S-41")
async def test_one_failing_input_fails_the_call_with_its_own_error(
    worker: pyserve.DeploymentHandle,
) -> None:
    begun = time.monotonic()
    with pytest.raises(HomeMadeError, match="number 7"):
        await worker.gather.remote(
            worker.remote(1), worker.sleep.remote(40), worker.fail.remote("own")
        )
    assert time.monotonic() - begun < 30


@pytest.mark.parity("G-49")
async def test_only_arguments_of_their_own_are_resolved(worker: pyserve.DeploymentHandle) -> None:
    with pytest.raises(UsageError, match="argument of its own"):
        worker.gather.remote([worker.remote(1)])
    with pytest.raises(UsageError, match="_to_object_ref_gen"):
        await worker.gather.remote(worker.count_up.options(stream=True).remote(3))
    reference = await worker.remote(1)._to_object_ref()
    assert "list" == await worker.kind_of.remote([reference])
    [kept] = await worker.remote([reference])
    assert isinstance(kept, pyserve.ObjectRef)
    assert 1 == await kept


@pytest.mark.parity("S-81")
async def test_a_response_becomes_a_reference(worker: pyserve.DeploymentHandle) -> None:
    for size in (10, LARGE):
        reference = await worker.blob.remote(size)._to_object_ref()
        assert size == await worker.size_of.remote(reference)
        assert size == len(await reference)
        assert size == len(await worker.blob.remote(size)._to_object_ref_sync())


@pytest.mark.parity("S-81")
async def test_references_inside_of_values_travel_as_such(
    worker: pyserve.DeploymentHandle,
) -> None:
    """Also one whose value is still being made."""
    pending = worker.sleep.remote(0.1)._to_object_ref_sync()
    large = worker.blob.remote(LARGE)._to_object_ref_sync()
    assert [0.1, LARGE] == await worker.look_up.remote({"first": pending, "second": large})


@pytest.mark.parity("S-81")
async def test_a_method_hands_references_over(chief: pyserve.DeploymentHandle) -> None:
    """The values outlive the call that has put them."""
    large, small = await chief.put.remote(LARGE)
    assert isinstance(large, pyserve.ObjectRef)
    assert LARGE == len(await large)
    assert b"small" == await small


def test_get_and_put_work_in_scripts(worker: pyserve.DeploymentHandle) -> None:
    reference = pyserve.put(bytes(LARGE))
    assert LARGE == worker.size_of.remote(reference).result(timeout_s=30)
    assert LARGE == len(pyserve.get(reference))
    assert [1, 2] == pyserve.get([worker.remote(1), worker.remote(2)], timeout=30)
    with pytest.raises(TimeoutError):
        pyserve.get(worker.sleep.remote(10), timeout=0.05)
    with pytest.raises(UsageError, match=r"pyserve\.get"):
        pyserve.get("reference")  # type: ignore[arg-type]


@pytest.mark.parity("S-39")
async def test_a_stream_gives_references(
    worker: pyserve.DeploymentHandle, several: pyserve.DeploymentHandle
) -> None:
    """Chunks go from producer to consumer; small ones travel inside of their references."""
    for size in (100, 300_000):
        stream = worker.count_up.options(stream=True).remote(4, size)
        references = [each async for each in await stream._to_object_ref_gen()]
        assert all(isinstance(each, pyserve.ObjectRef) for each in references)
        sizes = await asyncio.gather(*(several.size_of.remote(each) for each in references))
        assert [size] * 4 == sizes


@pytest.mark.parity("S-40")
async def test_stages_overlap(worker: pyserve.DeploymentHandle) -> None:
    """Eight chunks through three stages of 200 ms each take eleven steps, not 24."""
    stage_s, chunks = 0.2, 8
    begun = time.monotonic()
    stream = worker.paced.options(stream=True).remote(chunks, stage_s)
    middle = [
        worker.pass_on.remote(stage_s, each) async for each in await stream._to_object_ref_gen()
    ]
    ends = [worker.pass_on.remote(stage_s, each) for each in middle]
    assert list(range(chunks)) == await worker.gather.remote(*ends)
    assert time.monotonic() - begun < chunks * 3 * stage_s * 0.75


@pytest.mark.parity("S-76")
async def test_by_reference_can_be_turned_off(worker: pyserve.DeploymentHandle) -> None:
    """Then answers come back whole, and values that are held elsewhere are sent whole."""
    never = worker.options(_by_reference=False)
    inline = never.blob.remote(LARGE)
    await inline.arrive()
    assert inline.lease() is None
    held = worker.options(_by_reference=True).blob.remote(LARGE)
    await held.arrive()
    assert held.lease() is not None
    assert LARGE == await never.size_of.remote(held)
    assert LARGE == await never.size_of.remote(inline)


@pytest.mark.parity("S-76")
async def test_results_stay_by_their_size(worker: pyserve.DeploymentHandle) -> None:
    """Those of 8 MiB; with True those of 64 KiB, as without another word the chunks of streams."""

    async def stays(by_reference: bool | None, size: int) -> bool:
        response = worker.options(_by_reference=by_reference).blob.remote(size)
        await response.arrive()
        return response.lease() is not None

    sizes = (2**16 - 1_000, 2**16, 2**23 - 1_000, 2**23)
    assert [False, False, False, True] == [await stays(None, each) for each in sizes]
    assert [False, True, True, True] == [await stays(True, each) for each in sizes]
    assert [False, False, False, False] == [await stays(False, each) for each in sizes]


async def test_held_values_are_freed_when_nobody_refers_to_them(
    worker: pyserve.DeploymentHandle,
) -> None:
    responses = [worker.blob.remote(LARGE) for _ in range(4)]
    await asyncio.gather(*(each.arrive() for each in responses))
    assert 4 <= await worker.held.remote()
    del responses

    async def nothing_held() -> bool:
        return bool(0 == await worker.held.remote())

    await eventually(nothing_held, what="the producer holds nothing")
    assert 0 == attached().references.held_count


@pytest.mark.parity("S-07")
async def test_a_replica_chains(chief: pyserve.DeploymentHandle) -> None:
    assert 100 == await chief.relay.remote(100)
    assert LARGE == await chief.relay.remote(LARGE)
