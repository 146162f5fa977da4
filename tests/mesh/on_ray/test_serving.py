"""Applications in the cluster, called as clients call them."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import grpc.aio
import httpx
import psutil
import pytest

import pyserve
from benchmarks.chaos.load import OpenLoop
from services.echo import echo_pb2, echo_pb2_grpc
from tests.mesh.commands import pyserve as command
from tests.mesh.launchers.answers import of_digits
from tests.support.mesh import RunningMesh, running_mesh
from tests.support.ray_cluster import add_node
from tests.support.session import attached
from tests.support.waiting import eventually, wait_until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
APPS = "tests.mesh.on_ray.apps"
FILE = """
applications:
  - name: digits
    route_prefix: /digits
    import_path: services.digits.service:app
    deployments:
      - name: Digits
        num_replicas: 2
        ray_actor_options: {num_cpus: 0.1}
  - name: prices
    route_prefix: /prices
    import_path: tests.mesh.on_ray.apps:prices
    deployments:
      - name: Prices
        num_replicas: 2
        ray_actor_options: {num_cpus: 0.1, runtime_env: {env_vars: {CURRENCY: guilders}}}
"""
_RATE_PER_S = 200.0
# One node is lost this long after the first call, and calls go on for as long after it is known.
_BEFORE_S, _AFTER_S = 2.0, 3.0
_LOST_S = 60.0


@contextmanager
def on_ray(target: str, cluster: Any, *arguments: str) -> Iterator[RunningMesh]:
    options = ("--launcher", "ray", "--ray-address", cluster.address, *arguments)
    with running_mesh(target, *options) as mesh:
        yield mesh


def answers(mesh: RunningMesh) -> tuple[Any, Any]:
    """Return what one file's applications answer."""
    price = httpx.post(f"http://{mesh.address}/prices", json={"of": "tea"}, timeout=30)
    return of_digits(mesh.address), price.json()


def test_a_file_gives_the_same_answers_under_both_launchers(cluster: Any, tmp_path: Path) -> None:
    file = tmp_path / "mesh.yaml"
    file.write_text(FILE)

    with running_mesh(str(file)) as mesh:
        here = answers(mesh)
    with on_ray(str(file), cluster) as mesh:
        there = answers(mesh)

    [(label, _)], price = here
    assert (7, {"tea": "3 guilders"}) == (label, price)
    assert here == there


async def test_no_call_is_lost_that_had_not_reached_the_node_that_is_lost(
    cluster: Any, tmp_path: Path
) -> None:
    """200 calls a second; each is noted where it begins, with the node.

    A call had reached the node when it began there, or was sent there while its replica lived.
    """
    nodes = [add_node(cluster, num_cpus=1, resources={"prism": 1}) for _ in range(3)]
    lost, *others = [each.node_id for each in nodes]
    journal = tmp_path / "journal"
    failed: dict[str, Failed] = {}
    with on_ray(f"{APPS}:noting", cluster, f"journal={journal}") as mesh:
        async with grpc.aio.insecure_channel(mesh.address) as channel:
            noted = partial(note, echo_pb2_grpc.EchoStub(channel), count(), failed)
            load = OpenLoop([noted], _RATE_PER_S)
            stop = asyncio.Event()
            running = asyncio.create_task(load.run(stop))
            await eventually(lambda: {lost, *others} <= began(journal).keys(), 60)
            await asyncio.sleep(_BEFORE_S)
            (replica,) = {each.pid for each in began(journal)[lost]}
            ending = asyncio.create_task(asyncio.to_thread(until_gone, psutil.Process(replica)))
            await asyncio.to_thread(cluster.remove_node, nodes[0], allow_graceful=False)
            gone_s = await ending
            await eventually(lambda: asyncio.to_thread(serves_only, mesh, others), _LOST_S)
            await asyncio.sleep(_AFTER_S)
            stop.set()
            await running
    for each in nodes[1:]:
        await asyncio.to_thread(cluster.remove_node, each)

    assert load.ended["OK"] > (_BEFORE_S + _AFTER_S) * _RATE_PER_S / 2, load.ended
    assert {} == {name: each for name, each in failed.items() if each.sent_s > gone_s}
    elsewhere = {each.name for node in others for each in began(journal)[node]}
    assert {} == {name: each for name, each in failed.items() if name in elsewhere}
    assert len(failed) < 20, f"no more than were in flight there: {failed}"


@dataclass(frozen=True)
class Failed:
    """A call that was not answered as it should be."""

    sent_s: float
    how: str


async def note(
    stub: echo_pb2_grpc.EchoAsyncStub, numbers: Iterator[int], failed: dict[str, Failed]
) -> str:
    """Call once; keep by its name a call that fails."""
    name, sent_s = str(next(numbers)), time.monotonic()
    try:
        reply = await stub.Echo(echo_pb2.EchoRequest(payload=name.encode()), timeout=30)
    except grpc.aio.AioRpcError as error:
        failed[name] = Failed(sent_s, f"{error.code().name}: {error.details()}")
        return error.code().name
    if reply.payload.decode() != name:
        failed[name] = Failed(sent_s, f"wrong answer: {reply.payload!r}")
    return "OK"


def until_gone(process: psutil.Process) -> float:
    """Wait until it has ended; return when that was."""
    process.wait(_LOST_S)
    return time.monotonic()


class Began(NamedTuple):
    """A call that has begun, and in which process."""

    pid: int
    name: str


def began(journal: Path) -> dict[str, set[Began]]:
    """Return the calls that have begun, by nodes."""
    found: dict[str, set[Began]] = {}
    # The last line may be half written.
    whole = journal.read_text().rpartition("\n")[0] if journal.exists() else ""
    for line in whole.splitlines():
        node, pid, name = line.split()
        found.setdefault(node, set()).add(Began(int(pid), name))
    return found


def serves_only(mesh: RunningMesh, nodes: list[str]) -> bool:
    """Say whether these are the nodes of the replicas that serve."""
    done = command("status", "--json", environment={**os.environ, "PYSERVE_HOME": str(mesh.home)})
    (application,) = json.loads(done.stdout)["applications"].values()
    return {*nodes} == {
        replica["node"]
        for deployment in application["deployments"].values()
        for replica in deployment["replicas"]
        if replica["state"] == "RUNNING"
    }


@pytest.mark.parity("S-40")
async def test_references_of_ray_are_values_in_the_callee(cluster: Any) -> None:
    import ray

    @ray.remote(num_cpus=0.1)
    def late(value: int) -> int:
        time.sleep(0.2)
        return value

    @ray.remote(num_cpus=0.1)
    def failing() -> None:
        raise KeyError("of the task")

    with on_ray(f"{APPS}:adding", cluster) as mesh, attached(mesh.home):
        handle = pyserve.get_app_handle("default")

        assert 6 == await handle.remote(late.remote(1), [late.remote(2)], {"c": late.remote(3)})
        with pytest.raises(KeyError, match="of the task"):
            await handle.remote(failing.remote(), [], {})


@pytest.mark.parity("G-40")
def test_an_ingress_listens_on_each_node_and_is_named_in_status(cluster: Any) -> None:
    options = ("--launcher-option", "ingress_address=127.0.0.1:0")
    with on_ray("tests.mesh.launchers.apps:plain", cluster, *options) as mesh:
        environment = {**os.environ, "PYSERVE_HOME": str(mesh.home)}

        def found() -> dict[str, Any]:
            status = json.loads(command("status", "--json", environment=environment).stdout)
            return {
                each["node"]: each["addresses"]
                for each in status["ingresses"]
                if each["state"] == "HEALTHY"
            }

        wait_until(lambda: 3 == len(found()), 60)
        for addresses in found().values():
            answer = httpx.get(f"http://{addresses[0]}/", timeout=30)
            assert 200 == answer.status_code, answer.text
