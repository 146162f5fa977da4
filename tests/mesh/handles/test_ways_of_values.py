"""Which way values and calls go: what a caller never sees, and what all copies share."""

from __future__ import annotations

import asyncio
from pathlib import Path

import psutil
import pytest

import pyserve
from pyserve.api.context import attach, attached
from pyserve.driver.session import Session
from tests.support.waiting import eventually

pytestmark = pytest.mark.slow

MIB = 2**20
# Goes by reference without another word.
LARGE = 9 * MIB
# Deployments of ``apps.py`` and what each of them says to 1: nine sums, and Worker's echo.
ENSEMBLE = {
    **{f"Leaf{number}": number for number in range(5)},
    "Left": 3,
    "Right": 9,
    "Middle": 100,
    "Root": 1_112,
    "Worker": 1,
}


def _peak_bytes() -> int:
    """Return the most memory that this process has had since ``_forget_peak``."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    [peak] = [line for line in lines if line.startswith("VmHWM:")]
    return int(peak.split()[1]) * 1024


def _forget_peak() -> int:
    """Begin a new peak; return the memory that the process has now."""
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    return _peak_bytes()


def _connections() -> set[tuple[object, ...]]:
    """Return what this process is connected to, and by which descriptor."""
    return {
        (each.fd, each.type, each.laddr, each.raddr)
        for each in psutil.Process().net_connections(kind="all")
    }


@pytest.mark.parity("S-01")
async def test_as_many_processes_answer_as_replicas_were_asked_for(
    several: pyserve.DeploymentHandle,
) -> None:
    """Three, and no call ends anywhere else."""
    processes = set(await several.broadcast("process"))
    assert 3 == len(processes)
    assert processes == set(await asyncio.gather(*(several.process.remote() for _ in range(60))))


@pytest.mark.parity("S-07")
async def test_a_caller_never_holds_what_goes_from_one_replica_to_another(
    worker: pyserve.DeploymentHandle, several: pyserve.DeploymentHandle
) -> None:
    """Not for a moment: the peak of its memory, shared memory included, stays where it was."""
    size = 64 * MIB
    assert LARGE == await several.size_of.remote(worker.blob.remote(LARGE))
    before = _forget_peak()
    assert [size, size] == await asyncio.gather(
        several.size_of.remote(worker.blob.remote(size)),
        several.size_of.remote(value=worker.blob.remote(size)),
    )
    assert _peak_bytes() - before < size / 8
    # In contrast, the measurement when the bytes do come here.
    assert size == len(await worker.blob.remote(size))
    assert _peak_bytes() - before >= size / 2


@pytest.mark.parity("S-76")
async def test_a_handle_wins_over_the_switch_of_its_process(
    worker: pyserve.DeploymentHandle, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the switch answers come whole, unless the handle says that they stay."""
    mesh = attached()
    monkeypatch.setenv("PYSERVE_USE_GRPC_BY_DEFAULT", "1")
    attach(mesh)  # The environment is read here.
    for by_reference, stays in ((None, False), (True, True), (False, False)):
        response = worker.options(_by_reference=by_reference).blob.remote(LARGE)
        await response.arrive()
        assert stays is (response.lease() is not None)
    monkeypatch.setenv("PYSERVE_USE_GRPC_BY_DEFAULT", "0")
    attach(mesh)
    response = worker.options(_by_reference=None).blob.remote(LARGE)
    await response.arrive()
    assert response.lease() is not None


@pytest.mark.parity("S-06")
async def test_an_ensemble_of_ten_adds_up_for_four_clients(
    chief: pyserve.DeploymentHandle,
) -> None:
    """Each of 20 requests of a client goes to ten deployments at once, whose answers are added."""

    async def client() -> list[int]:
        return [await chief.ensemble.remote(list(ENSEMBLE), 1) for _ in range(20)]

    sums = await asyncio.gather(*(client() for _ in range(4)))
    assert [[sum(ENSEMBLE.values())] * 20] * 4 == sums


@pytest.mark.parity("S-05")
async def test_copies_open_no_connections(worker: pyserve.DeploymentHandle) -> None:
    """Neither to replicas nor to the controller, whatever they differ in; all have one caller."""
    assert 0 == await worker.remote(0)
    before = _connections()
    copies = [
        worker.options(multiplexed_model_id=f"m{number}", _prefer_local_routing=number % 2 == 0)
        for number in range(100)
    ]
    await asyncio.gather(*(copy.remote(1) for copy in copies))
    assert 1 == len({id(copy._own_plan().caller()) for copy in (worker, *copies)})
    # Those of earlier tests may end now.
    assert set() == _connections() - before


@pytest.mark.parity("G-55")
async def test_a_child_that_waits_for_a_place_ends_with_its_parent(
    chief: pyserve.DeploymentHandle, session: Session
) -> None:
    """Its code never runs, though the place becomes free."""
    one = pyserve.DeploymentHandle("OneAtATime", "default")
    [before] = await one.broadcast("seen")
    holding = one.hold.remote()

    async def is_held() -> bool:
        return (await one.broadcast("is_held")) == [True]

    await eventually(is_held)
    parent = chief.look_up.remote("OneAtATime", 41)
    await asyncio.sleep(0.2)  # So much time to be sent, if nothing held it.
    parent.cancel()
    with pytest.raises(pyserve.RequestCancelled):
        await parent

    async def has_ended() -> bool:
        return not await chief.looks_up.remote()

    await eventually(has_ended)  # The caller hears of its cancellation before the chief does.
    assert [None] == await one.broadcast("release")
    await holding
    assert 43 == await one.remote(42)
    assert [[*before, 42]] == await one.broadcast("seen")
