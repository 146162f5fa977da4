"""Whose application it is: several ``pyserve run`` against one controller over real gRPC."""

import asyncio

from pyserve.aio.mesh_channel import proof
from pyserve.control.runs import Runs
from pyserve.control.state.specs import Run
from pyserve.wire.v1 import control_pb2
from tests.mesh.control.fakes import raise_in_constructor, serve
from tests.mesh.control.test_services import TIMEOUT_S, TOKEN, Mesh, mesh
from tests.support.waiting import eventually

__all__ = ["mesh"]
FIRST, SECOND = control_pb2.Run(id="a", pid=11), control_pb2.Run(id="b", pid=22)


Lost = asyncio.Queue[Run]


class Lines:
    """The terminal of a run."""

    def __init__(self, mesh: Mesh, run: control_pb2.Run) -> None:
        self._call = mesh.control.Follow(control_pb2.FollowRequest(run=run), metadata=proof(TOKEN))

    async def known(self) -> "Lines":
        async with asyncio.timeout(TIMEOUT_S):
            await self._call.initial_metadata()
        return self

    async def next(self) -> str:
        async with asyncio.timeout(TIMEOUT_S):
            event = await self._call.read()
        assert isinstance(event, control_pb2.FollowEvent)
        return event.line

    def close(self) -> None:
        self._call.cancel()


async def leave(mesh: Mesh, run: control_pb2.Run) -> list[int]:
    reply = await mesh.control.Leave(
        control_pb2.LeaveRequest(run=run), metadata=proof(TOKEN), timeout=TIMEOUT_S
    )
    return [each.pid for each in reply.others]


def notices(events: list[control_pb2.DeployEvent]) -> list[str]:
    return [event.notice for event in events if event.WhichOneof("kind") == "notice"]


async def test_both_terminals_hear_of_a_replacement(mesh):
    first = await Lines(mesh, FIRST).known()
    assert [] == notices(await mesh.deploy("Echo", run=FIRST))

    found = notices(await mesh.deploy("Echo", run=SECOND))

    assert ["replaces the application 'shop' of pyserve run (pid 11)"] == found
    assert "pyserve run (pid 22) replaces the application 'shop' of this run" == await first.next()


async def test_a_run_that_has_ended_and_other_programs_are_named_as_such(mesh):
    await mesh.deploy("Echo")
    (other,) = notices(await mesh.deploy("Echo", run=FIRST))
    (ended,) = notices(await mesh.deploy("Echo", run=SECOND))

    assert "another program deployed" in other
    assert "of pyserve run (pid 11), which has ended" in ended


async def test_the_end_of_the_first_run_leaves_what_the_second_deployed(mesh):
    await mesh.deploy("Echo", run=FIRST)
    await mesh.deploy("Echo", run=SECOND)
    # A name, since a call that nobody holds any more is cancelled.
    terminal = await Lines(mesh, SECOND).known()

    assert [22] == await leave(mesh, FIRST)
    assert "HEALTHY" == (await mesh.status())["Echo"].state
    assert [] == await leave(mesh, SECOND)
    assert {} == await mesh.status()
    terminal.close()


async def test_a_replacement_that_fails_gives_the_application_back(mesh):
    first = await Lines(mesh, FIRST).known()
    await mesh.deploy("Echo", run=FIRST)
    mesh.launcher.script = raise_in_constructor

    await mesh.deploy("Echo", run=SECOND)

    await first.next()
    assert "the application 'shop' of this run serves on, as it was" == await first.next()
    await leave(mesh, SECOND)
    assert "HEALTHY" == (await mesh.status())["Echo"].state
    await leave(mesh, FIRST)
    assert {} == await mesh.status()


async def test_a_run_that_ends_while_it_replaces_leaves_the_former_version(mesh):
    """Two deployments, one of which is new: only the new one ends."""
    first = await Lines(mesh, FIRST).known()
    await mesh.deploy("Echo", run=FIRST)
    begun = asyncio.Event()

    async def hang(replica):
        await replica.join()
        begun.set()
        await replica.serve_until_drained()

    mesh.launcher.script = hang
    deploying = asyncio.create_task(mesh.deploy("Echo", "Side", run=SECOND))
    async with asyncio.timeout(TIMEOUT_S):
        await begun.wait()
    mesh.launcher.script = serve

    await leave(mesh, SECOND)

    assert "failed" == (await deploying)[-1].WhichOneof("kind")
    await first.next()
    assert "serves on" in await first.next()

    async def as_before():
        found = await mesh.status()
        return ["Echo"] == list(found) and "HEALTHY" == found["Echo"].state

    await eventually(as_before, TIMEOUT_S)
    assert mesh.launcher.started[0].drained.is_set() is False


async def test_the_terminal_hears_of_replicas_that_die_and_of_failing_checks(mesh):
    lines = await Lines(mesh, FIRST).known()
    await mesh.deploy("Echo", run=FIRST)
    (replica,) = mesh.launcher.started
    name = replica.order.replica_id

    await replica.unhealthy()
    assert f"Echo: replica {name} fails its health check: check_health raised" == await lines.next()
    assert ["UNHEALTHY"] == [each.state for each in (await mesh.status())["Echo"].replicas]
    await replica.end("was killed by SIGKILL")
    assert f"Echo: replica {name} ended (killed by SIGKILL), starting another" == await lines.next()


async def test_without_a_run_the_lines_go_where_the_mesh_writes(mesh):
    said: list[str] = []
    mesh.controller._say = said.append
    await mesh.deploy("Echo")

    await mesh.launcher.started[0].end("ended with exit code 3; its last output: gone")

    await eventually(lambda: said, TIMEOUT_S)
    assert "ended (exit code 3), starting another" in said[0]


async def test_a_run_that_goes_is_no_longer_there(mesh):
    left = asyncio.Event()
    mesh.controller.runs.on_left = left.set
    lines = await Lines(mesh, FIRST).known()
    run = Run("a", 11)
    assert mesh.controller.runs.is_following(run)

    lines.close()

    async with asyncio.timeout(TIMEOUT_S):
        await left.wait()
    assert not mesh.controller.runs.is_following(run)


async def test_every_run_is_told_the_end_of_the_mesh(mesh):
    lines = await Lines(mesh, FIRST).known()

    mesh.controller.runs.close()

    async with asyncio.timeout(TIMEOUT_S):
        assert [] == [event.line async for event in lines._call]


async def test_a_run_that_does_not_come_back_is_lost_and_no_other():
    runs, lost = Runs(return_timeout_s=0.0), Lost()
    runs.on_lost = lost.put_nowait
    returning, going = Run("a", 11), Run("b", 22)
    followers = [runs.follow(returning), runs.follow(going)]
    for follower in followers:
        runs.leave(follower)

    runs.follow(returning)

    async with asyncio.timeout(TIMEOUT_S):
        assert going == await lost.get()
    assert lost.empty()


async def test_a_run_of_which_one_stream_is_left_is_not_lost():
    """It has dialled again before the end of its first connection was noticed."""
    runs, lost = Runs(return_timeout_s=0.0), Lost()
    runs.on_lost = lost.put_nowait
    first, _, other = runs.follow(Run("a", 11)), runs.follow(Run("a", 11)), runs.follow(Run("b", 2))

    runs.leave(first)
    runs.leave(other)

    async with asyncio.timeout(TIMEOUT_S):
        assert other.run == await lost.get()
    assert lost.empty()


async def test_what_a_lost_run_deployed_ends_and_the_mesh_says_so(mesh):
    said: list[str] = []
    mesh.controller._say = said.append
    await mesh.deploy("Echo", run=FIRST)

    mesh.controller.lose_run(Run("b", 22))
    mesh.controller.lose_run(Run("a", 11))

    async def is_gone():
        return {} == await mesh.status()

    await eventually(is_gone, TIMEOUT_S)
    assert ["pyserve run (pid 11) is gone, and what it deployed ends: shop"] == said
    mesh.controller.lose_run(Run("a", 11))
    assert 1 == len(said)


async def test_a_run_in_a_hurry_ends_without_its_grace(mesh):
    drained = asyncio.Event()

    async def hang_in_a_call(replica):
        await replica.join()
        await replica.ready()
        while (await replica._call.read()).WhichOneof("kind") != "drain":
            pass
        drained.set()
        await asyncio.Event().wait()

    mesh.launcher.script = hang_in_a_call
    await mesh.deploy("Echo", run=FIRST, graceful_shutdown_timeout_s=600.0)
    leaving = asyncio.create_task(leave(mesh, FIRST))
    async with asyncio.timeout(TIMEOUT_S):
        await drained.wait()

    mesh.controller.hurry_run("a")

    assert [] == await leaving
    (replica,) = mesh.launcher.started
    assert [replica.order.replica_id] == mesh.launcher.killed
