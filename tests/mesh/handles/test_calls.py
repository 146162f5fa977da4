"""Calls of handles in a real mesh: from scripts, loops, threads and other replicas."""

from __future__ import annotations

import asyncio
import os
import pickle
import signal
import threading
import time
from typing import Any

import pytest

import pyserve
from pyserve.driver.session import Session
from pyserve.errors import RequestTimeout, UsageError
from tests.support.waiting import eventually, wait_until

pytestmark = pytest.mark.slow
_TIMEOUT_S = 30.0


@pytest.mark.parity("S-03")
def test_a_script_takes_results_without_a_loop(worker: pyserve.DeploymentHandle) -> None:
    assert [1, 2] == worker.remote([1, 2]).result(timeout_s=_TIMEOUT_S)
    assert 6 == worker.add.remote(1, 2, three=3).result(timeout_s=_TIMEOUT_S)


@pytest.mark.parity("S-03")
async def test_a_loop_awaits_responses(worker: pyserve.DeploymentHandle) -> None:
    responses = [worker.remote(number) for number in range(50)]
    assert list(range(50)) == [await response for response in responses]
    assert [0, 1, 2] == await asyncio.gather(*(worker.remote(number) for number in range(3)))


@pytest.mark.parity("S-03")
async def test_a_call_starts_before_anybody_awaits_it(worker: pyserve.DeploymentHandle) -> None:
    response = worker.wait.remote()

    async def is_running() -> bool:
        return bool((await worker.counts.remote())["running"])

    await eventually(is_running)
    await worker.open.remote()
    assert "" == await response


def test_a_replica_follows_the_mesh_as_soon_as_it_has_a_handle(session: Session) -> None:
    """So that its first call, which its loop may make, need not wait for the view."""
    holder = pyserve.DeploymentHandle("Holder", "default")
    assert "pyserve-feed" in holder.threads.remote().result(timeout_s=_TIMEOUT_S)


@pytest.mark.parity("G-48")
async def test_a_response_is_awaited_again_and_elsewhere(worker: pyserve.DeploymentHandle) -> None:
    """By the loop that made it, another loop, and a thread without one."""
    response = worker.sleep.remote(0.05)

    async def await_it() -> float:
        return float(await response)

    elsewhere = asyncio.to_thread(lambda: asyncio.run(await_it()))
    blocking = asyncio.to_thread(response.result, _TIMEOUT_S)
    assert [0.05, 0.05, 0.05] == await asyncio.gather(await_it(), elsewhere, blocking)
    assert 0.05 == await response


@pytest.mark.parity("G-48")
def test_responses_outlive_the_loops_that_ask(worker: pyserve.DeploymentHandle) -> None:
    """``asyncio.run`` again and again, as notebooks and tests do it."""

    async def ask() -> int:
        return int(await worker.remote(1))

    assert [1, 1, 1] == [asyncio.run(ask()) for _ in range(3)]

    async def leave() -> Any:
        return worker.wait.remote()

    left = asyncio.run(leave())
    with pytest.raises(pyserve.RequestCancelled, match=r"event loop .* closed"):
        left.result(timeout_s=_TIMEOUT_S)


@pytest.mark.parity("G-48")
async def test_result_on_a_running_loop_says_what_to_write(
    worker: pyserve.DeploymentHandle,
) -> None:
    with pytest.raises(UsageError, match="await response"):
        worker.remote(1).result()


@pytest.mark.parity("G-48")
def test_result_gives_up_in_time_and_the_call_goes_on(worker: pyserve.DeploymentHandle) -> None:
    response = worker.wait.remote("still there")
    with pytest.raises(TimeoutError, match=r"no answer within 0\.05 s"):
        response.result(timeout_s=0.05)
    assert not response.done()
    wait_until(lambda: worker.counts.remote().result(_TIMEOUT_S)["running"])
    worker.open.remote().result(_TIMEOUT_S)
    assert "still there" == response.result(timeout_s=_TIMEOUT_S)


@pytest.mark.parity("G-48")
def test_the_request_id_is_the_one_that_the_method_sees(worker: pyserve.DeploymentHandle) -> None:
    response = worker.who.remote()
    assert response.request_id == response.result(_TIMEOUT_S)["request"]


def test_threads_without_loops_share_one(worker: pyserve.DeploymentHandle) -> None:
    """Calls from any number of threads need one loop of ours."""
    results: list[int] = []
    threads = [
        threading.Thread(target=lambda: results.append(worker.remote(1).result(_TIMEOUT_S)))
        for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(_TIMEOUT_S)
    assert [1] * 8 == results
    assert ["pyserve-calls"] == [
        thread.name for thread in threading.enumerate() if thread.name == "pyserve-calls"
    ]


@pytest.mark.parity("S-04")
async def test_handles_in_constructors_call_other_deployments(
    chief: pyserve.DeploymentHandle,
) -> None:
    assert "DeploymentHandle" == await chief.type_of_worker.remote()
    assert "through two processes" == await chief.remote("through two processes")
    assert 5 == await chief.from_thread.remote(5)


@pytest.mark.parity("S-06")
async def test_a_graph_of_ten_nodes_adds_up(chief: pyserve.DeploymentHandle) -> None:
    """Left has three leaves, Right three, Middle one and 100, Root 1000; a leaf adds its number."""
    leaves = (0 + 1 + 2) + (2 + 3 + 4)
    assert 1_000 + leaves + 100 + 0 == await chief.sum_of_graph.remote(1)


@pytest.mark.parity("S-05")
async def test_copies_share_one_way_to_the_replicas(worker: pyserve.DeploymentHandle) -> None:
    """However many copies there are, the process has one caller for the deployment."""
    copies = [
        worker.options(
            stream=False,
            multiplexed_model_id=f"m{number}",
            _prefer_local_routing=True,
            _by_reference=False,
            request_serialization="msgpack",
            response_serialization="orjson",
        )
        for number in range(100)
    ]
    assert list(range(100)) == await asyncio.gather(
        *(copy.remote(number) for number, copy in enumerate(copies))
    )
    threads = threading.active_count()
    await copies[0].remote(1)
    # Fewer, if one of an earlier test ends now.
    assert threads >= threading.active_count()


@pytest.mark.parity("S-29")
async def test_the_model_id_arrives_and_is_not_handed_down(
    worker: pyserve.DeploymentHandle, chief: pyserve.DeploymentHandle
) -> None:
    """A child call names its own model, or none."""
    named = worker.options(multiplexed_model_id="m1")
    assert "m1" == (await named.who.remote())["model"]
    _, child = await chief.options(multiplexed_model_id="m1").who.remote()
    assert "" == child["model"]
    _, child = await chief.who.remote(multiplexed_model_id="m2")
    assert "m2" == child["model"]


async def test_a_child_call_inherits_id_and_the_smaller_deadline(
    chief: pyserve.DeploymentHandle,
) -> None:
    own, child = await chief.options(timeout_s=20).who.remote()
    assert own["request"] == child["request"]
    assert 0 < child["left_s"] <= 20
    _, child = await chief.options(timeout_s=20).who.remote(timeout_s=5)
    assert 0 < child["left_s"] <= 5
    _, child = await chief.options(timeout_s=5).who.remote(timeout_s=20)
    assert 0 < child["left_s"] <= 5
    _, child = await chief.options(timeout_s=5).who.remote(detached=True)
    assert child["left_s"] is None


async def test_a_deadline_ends_a_call(worker: pyserve.DeploymentHandle) -> None:
    begun = time.monotonic()
    with pytest.raises(RequestTimeout):
        await worker.sleep.options(timeout_s=0.1).remote(40)
    assert time.monotonic() - begun < 30


@pytest.mark.parity("G-53")
async def test_handles_keep_their_options_when_they_travel(
    worker: pyserve.DeploymentHandle,
) -> None:
    travelled = pickle.loads(pickle.dumps(worker.who.options(multiplexed_model_id="m3")))
    assert "m3" == (await travelled.remote())["model"]


@pytest.mark.parity("S-78")
async def test_codecs_are_chosen_for_each_direction(worker: pyserve.DeploymentHandle) -> None:
    """JSON makes lists of tuples, pickle keeps them."""
    assert [1, 2] == await worker.options(request_serialization="json").remote((1, 2))
    assert (1, 2) == await worker.remote((1, 2))
    mixed = worker.options(request_serialization="pickle", response_serialization="msgpack")
    assert [1, 2] == await mixed.remote((1, 2))
    assert "tuple" == await mixed.kind_of.remote((1, 2))


async def test_a_deployment_names_the_codec_of_its_handles(session: Session) -> None:
    packing = pyserve.DeploymentHandle("Packing", "default")
    assert "list" == await packing.remote((1, 2))
    assert "tuple" == await packing.options(request_serialization="pickle").remote((1, 2))


@pytest.mark.parity("G-53")
async def test_a_replica_finds_handles_by_name(chief: pyserve.DeploymentHandle) -> None:
    """Of its own application unless another one is named."""
    assert "found" == await chief.look_up.remote("Worker", "found")
    with pytest.raises(pyserve.exceptions.MeshNotFound, match="no deployment 'Nobody'; it has"):
        await chief.look_up.remote("Nobody", "lost")


@pytest.mark.parity("G-53")
def test_a_replica_finds_what_it_follows_without_the_controller(session: Session) -> None:
    """Code that gets a handle in each request does not wait for another process."""
    chief = pyserve.get_app_handle("default")
    assert "before" == chief.look_up.remote("Worker", "before").result(_TIMEOUT_S)
    controller = session.client.status().controller_pid
    os.kill(controller, signal.SIGSTOP)
    try:
        assert "during" == chief.look_up.remote("Worker", "during").result(_TIMEOUT_S)
    finally:
        os.kill(controller, signal.SIGCONT)


@pytest.mark.parity("G-53")
def test_a_driver_finds_handles_by_name(session: Session) -> None:
    handle = pyserve.get_app_handle("default")
    assert ("Chief", "default") == (handle.deployment_name, handle.app_name)
    assert 1 == handle.remote(1).result(_TIMEOUT_S)
    assert 1 == pyserve.get_deployment_handle("Worker").remote(1).result(_TIMEOUT_S)
    with pytest.raises(pyserve.exceptions.MeshNotFound, match="no application 'other' runs"):
        pyserve.get_app_handle("other")
