"""What every launcher has to do, whatever its replicas are."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path

import httpx
import psutil
import pytest

from pyserve.config.capabilities import OF_LAUNCHERS
from pyserve.control.state.mesh import Phase
from pyserve.errors import UsageError
from pyserve.launch import LastingLauncher, Launcher
from tests.docs.page import read_blocks
from tests.mesh.commands import ROOT
from tests.mesh.launchers.world import TIMEOUT_S, Engine, World, is_gone, kill, standing, unknown
from tests.support.mesh import running_mesh
from tests.support.waiting import eventually

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]
# Well below the times after which a stream, or a process that gives no sign of life, is given up.
PROMPTLY_S = 8.0
GUIDE = ROOT / "docs" / "guide" / "launchers.md"
# The one of the guide is a user's.
OWN = Engine("niced:Niced", refuses={"gang_scheduling_config": {"gang_size": 1}})
EXTERNAL = Engine("external", starts=False, knows_ends=False, refuses={"num_replicas": 1})
ON_RAY = Engine("ray", is_lasting=True, refuses={"pod_template": {}})
ON_KUBERNETES = Engine("kubernetes", is_lasting=True, host="127.0.0.1", refuses={"pip": ["lens"]})
ENGINES = [
    *(Engine("process"), Engine("process", is_lasting=True), EXTERNAL, OWN),
    *(ON_KUBERNETES, ON_RAY),
]
STARTING = [each for each in ENGINES if each.starts]
# Of those on Ray where no `make ray` runs them; each starts processes of Ray.
ALSO_ON_RAY = frozenset(
    {
        "test_what_is_started_joins_and_each_is_one_process",
        "test_one_that_is_killed_is_seen_at_once_and_is_the_only_one_that_is_replaced",
        "test_what_it_cannot_do_is_refused_and_nothing_begins",
        "test_a_close_leaves_nothing_and_ends_the_watch",
        "test_another_controller_finds_them_and_starts_none_twice",
    }
)
WITH_GANGS = [each for each in ENGINES if each.name in ("process", "ray")]


@pytest.fixture
def own_launcher(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The launcher of the guide, as a module beside the user's code."""
    for block in read_blocks(GUIDE.read_text()):
        if block.words == ("niced.py",):
            (tmp_path / "niced.py").write_text(block.body)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield
    sys.modules.pop("niced", None)


@pytest.fixture
async def world(
    request: pytest.FixtureRequest, own_launcher: None, tmp_path: Path
) -> AsyncIterator[World]:
    engine: Engine = request.param
    if engine is ON_RAY:
        assert isinstance(request.node, pytest.Function)
        if "TEST_RAY_CLUSTER" not in os.environ and request.node.originalname not in ALSO_ON_RAY:
            pytest.skip("`make ray` runs it")
        engine = replace(engine, options={"address": request.getfixturevalue("ray_address")})
    async with AsyncExitStack() as stack:
        if engine is ON_KUBERNETES:
            pytest.importorskip("kubernetes_asyncio", reason="pip install -r requirements.txt")
            from tests.support.kubernetes_api import serving_cluster

            # Its pods are processes of this machine.
            _, file = await stack.enter_async_context(serving_cluster(tmp_path))
            engine = replace(engine, options={"kubeconfig": str(file), "image": "pyserve"})
        yield await stack.enter_async_context(standing(engine))


def of(engines: list[Engine]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize(
        "world", engines, ids=[each.label for each in engines], indirect=True
    )


@of(ENGINES)
async def test_what_is_started_joins_and_each_is_one_process(world: World) -> None:
    assert isinstance(world.launcher, Launcher)

    replicas = await world.serve("plain", 2)

    pids = {each.pid for each in replicas}
    assert 2 == len(pids)
    assert not any(map(is_gone, pids))


@pytest.mark.parametrize("launcher", ["process", "ray"])
def test_what_the_command_line_starts_with_it_answers_calls_and_ends(
    launcher: str, request: pytest.FixtureRequest
) -> None:
    address = request.getfixturevalue("ray_address") if launcher == "ray" else None
    where = ("--ray-address", address) if address else ()
    with running_mesh("tests.mesh.launchers.apps:plain", "--launcher", launcher, *where) as mesh:
        answer = httpx.get(f"http://{mesh.address}/", timeout=30)

        assert 200 == answer.status_code, answer.text
        replica = psutil.Process(answer.json())
        parent = replica.parent()
        assert parent is not None
        assert (launcher == "ray") == ("ReplicaActor" in " ".join(parent.cmdline()))

    for each in (replica, parent):
        each.wait(30)


@of(ENGINES)
async def test_what_is_not_needed_ends_in_order_and_promptly(world: World) -> None:
    replicas = await world.serve("plain", 2)

    async with asyncio.timeout(PROMPTLY_S):
        await world.controller.delete("shop")
        await eventually(lambda: all(is_gone(each.pid) for each in replicas), PROMPTLY_S)

    assert [] == list(world.controller.state.replicas)


@of(STARTING)
async def test_a_stop_lets_a_replica_finish_and_end(world: World) -> None:
    """The launcher is told, and not the replica by its stream, which may be broken."""
    (replica,) = await world.serve("plain")

    world.launcher.stop(replica.id, 20.0)

    await eventually(lambda: is_gone(replica.pid), PROMPTLY_S)
    await eventually(lambda: replica.id not in world.controller.state.replicas, PROMPTLY_S)
    # Nobody but the launcher was asked for it, so the end is kept, in the launcher's words.
    assert "ended with exit code 0" == world.ended()


@of(STARTING)
async def test_what_does_not_end_in_its_grace_is_killed(world: World) -> None:
    (replica,) = await world.serve("lingering")

    world.launcher.stop(replica.id, 0.2)

    await eventually(lambda: is_gone(replica.pid), PROMPTLY_S)
    await eventually(lambda: replica.id not in world.controller.state.replicas, PROMPTLY_S)


@of(STARTING)
async def test_grace_may_be_taken_back(world: World) -> None:
    (replica,) = await world.serve("lingering")

    world.launcher.stop(replica.id, 600.0)
    world.launcher.stop(replica.id, 0)

    await eventually(lambda: is_gone(replica.pid), PROMPTLY_S)


@of(ENGINES)
async def test_a_replica_that_nobody_knows_is_stopped_without_effect(world: World) -> None:
    (replica,) = await world.serve("plain")

    for grace_s in (0, 1.0):
        world.launcher.stop(unknown(), grace_s)

    assert [replica] == world.serving()
    assert not is_gone(replica.pid)


@of(ENGINES)
async def test_one_that_is_killed_is_seen_at_once_and_is_the_only_one_that_is_replaced(
    world: World,
) -> None:
    killed, other = await world.serve("plain", 2)

    kill(killed)

    await eventually(lambda: killed.id not in world.controller.state.replicas, PROMPTLY_S)
    if world.engine.starts:
        await eventually(lambda: 2 == len(world.serving()), TIMEOUT_S)
    assert other in world.serving()
    if world.engine.knows_ends:
        assert "SIGKILL" in world.ended()


@pytest.mark.parity("G-14")
@of(WITH_GANGS)
async def test_a_gang_that_loses_one_ends_and_starts_again_as_a_whole(world: World) -> None:
    world.deploy("ganged", 2, gang_scheduling_config={"gang_size": 2})
    await eventually(lambda: 2 == len(world.serving()), TIMEOUT_S)
    killed, other = world.serving()
    assert killed.gang == other.gang != ""

    kill(killed)

    await eventually(lambda: is_gone(other.pid), PROMPTLY_S)
    await eventually(lambda: 2 == len(world.serving()), TIMEOUT_S)
    again = world.serving()
    assert 1 == len({each.gang for each in again})
    assert not {each.id for each in again} & {killed.id, other.id}
    members = sorted(each.id for each in again)
    expected = [f"{rank} of 2 in {again[0].gang}, with {members}" for rank in range(2)]
    await eventually(lambda: all(each in "\n".join(world.lines) for each in expected), PROMPTLY_S)


@of(STARTING)
async def test_what_it_wrote_last_outlives_it(world: World) -> None:
    (replica,) = await world.serve("speaking")
    await eventually(lambda: "my last words" in "\n".join(world.lines), PROMPTLY_S)

    kill(replica)

    await eventually(lambda: "SIGKILL" in world.ended(), PROMPTLY_S)
    assert "my last words" in world.last_lines(replica)


@of(ENGINES)
async def test_what_it_cannot_do_is_refused_and_nothing_begins(world: World) -> None:
    can = world.launcher.capabilities
    if not world.engine.refuses:
        assert OF_LAUNCHERS == can.acts_on | can.needless.keys()
        return
    [option] = world.engine.refuses
    named = option if world.engine.starts else "pyserve replica"

    with pytest.raises(UsageError, match=rf"launcher '{world.launcher.name}' .*{named}"):
        world.deploy("plain", 1, **world.engine.refuses)

    assert {} == dict(world.controller.state.deployments)


@of(STARTING)
async def test_a_close_leaves_nothing_and_ends_the_watch(world: World) -> None:
    replicas = await world.serve("plain", 2)

    async with asyncio.timeout(PROMPTLY_S):
        await world.controller.close()
        await world.launcher.close()

    assert all(is_gone(each.pid) for each in replicas)
    assert world.controller._processes._watching.done()


@of([each for each in ENGINES if each.is_lasting or not each.starts])
async def test_another_controller_finds_them_and_starts_none_twice(world: World) -> None:
    before = {each.id: each.pid for each in await world.serve("plain", 2)}
    assert world.engine.is_lasting == isinstance(world.launcher, LastingLauncher)

    await world.lose_controller()
    assert not any(map(is_gone, before.values()))
    await world.begin()

    await eventually(lambda: 2 == len(world.serving()), TIMEOUT_S)
    replicas = world.controller.state.replicas.values()
    assert before == {each.id: each.pid for each in replicas}
    assert {Phase.RUNNING} == {each.phase for each in replicas}


@of([each for each in ENGINES if each.is_lasting])
async def test_one_that_ended_meanwhile_is_known_to_have(world: World) -> None:
    killed, other = await world.serve("plain", 2)

    await world.lose_controller()
    kill(killed)
    await eventually(lambda: is_gone(killed.pid), PROMPTLY_S)
    await world.begin()

    await eventually(lambda: 2 == len(world.serving()), TIMEOUT_S)
    found = {each.id: each.pid for each in world.serving()}
    assert killed.id not in found
    assert other.pid == found[other.id]
