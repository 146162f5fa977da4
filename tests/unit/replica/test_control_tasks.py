"""A replica's duties go on in their own thread while its loop stands still."""

import asyncio
import threading
from typing import Any

import pytest

from pyserve.config import DeploymentOptions
from pyserve.errors import MeshError
from pyserve.replica.control_tasks import SharedControlTasks, ThreadedControlTasks
from pyserve.wire.v1 import mesh_pb2
from tests.support.waiting import eventually, wait_until

KINDS = [SharedControlTasks, ThreadedControlTasks]


class Talk:
    """A controller's answers, and where they were asked for."""

    def __init__(self, on_command: Any, error: Exception | None = None) -> None:
        self.on_command = on_command
        self.error = error
        self.said: list[tuple[str, threading.Thread]] = []
        self.reports: list[bool] = []
        self.stats: asyncio.Queue[str] = asyncio.Queue()
        self.loads: asyncio.Queue[mesh_pb2.ReplicaLoad] = asyncio.Queue()
        self.joined = asyncio.Event()

    async def join(self) -> mesh_pb2.Assign:
        self._say("join")
        if self.error is not None:
            raise self.error
        return mesh_pb2.Assign(replica_id="Echo#1")

    async def announce(self, ready: mesh_pb2.Ready) -> None:
        self._say("announce")
        self.on_command(mesh_pb2.ReplicaCommand(limits=mesh_pb2.Limits(max_ongoing_requests=3)))

    async def begin_drain(self) -> None:
        self._say("begin_drain")

    async def fail(self, *, summary: str, traceback: str, user_code: bool) -> bool:
        self._say("fail")
        return True

    async def report_reconfigured(self, _outcome: mesh_pb2.Reconfigured) -> None:
        self._say("report_reconfigured")

    async def report_health(self, *, healthy: bool, reason: str) -> None:
        self.reports.append(healthy)

    async def report_routing_stats(self, stats_json: str) -> None:
        self._say("report_routing_stats")
        self.stats.put_nowait(stats_json)

    async def report_load(self, load: mesh_pb2.ReplicaLoad) -> None:
        self._say("report_load")
        self.loads.put_nowait(load)

    async def leave(self) -> None:
        self._say("leave")

    def _say(self, word: str) -> None:
        self.said.append((word, threading.current_thread()))


def make(kind: Any, error: Exception | None = None) -> tuple[Any, list[Any], list[Any]]:
    """Return duties, the talks that they made, and the commands that arrived with their thread."""
    talks: list[Any] = []
    commands: list[Any] = []

    def make_membership(on_command: Any) -> Any:
        talks.append(Talk(on_command, error))
        return talks[-1]

    def on_command(command: mesh_pb2.ReplicaCommand) -> None:
        commands.append((command.limits.max_ongoing_requests, threading.current_thread()))

    return kind(make_membership, on_command), talks, commands


@pytest.mark.parametrize("kind", KINDS)
async def test_both_kinds_say_the_same_and_hand_commands_to_the_users_loop(kind: Any):
    control_tasks, talks, commands = make(kind)
    assert "Echo#1" == (await control_tasks.join()).replica_id
    await control_tasks.announce(mesh_pb2.Ready())
    await asyncio.sleep(0)
    await control_tasks.report_reconfigured(mesh_pb2.Reconfigured())
    await control_tasks.begin_drain()
    assert await control_tasks.fail(summary="", traceback="", user_code=False)
    await control_tasks.leave()

    (talk,) = talks
    words = ["join", "announce", "report_reconfigured", "begin_drain", "fail", "leave"]
    assert words == [word for word, _ in talk.said]
    assert [(3, threading.main_thread())] == commands
    where = {thread is threading.main_thread() for _, thread in talk.said}
    assert {kind is SharedControlTasks} == where
    assert not any(thread.name == "pyserve-duties" for thread in threading.enumerate())


@pytest.mark.parametrize("kind", KINDS)
async def test_a_refusal_reaches_the_worker(kind: Any):
    control_tasks, _, _ = make(kind, MeshError("not you"))
    with pytest.raises(MeshError, match="not you"):
        await control_tasks.join()
    await control_tasks.leave()


async def test_leaving_before_joining_does_nothing():
    control_tasks, _, _ = make(ThreadedControlTasks)
    await control_tasks.leave()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parity("G-76")
async def test_routing_stats_are_recorded_in_the_users_loop_and_reported_beside_it(kind: Any):
    threads: list[threading.Thread] = []

    class Recording:
        async def record_routing_stats(self) -> dict[str, int]:
            threads.append(threading.current_thread())
            return {"calls": 1}

    control_tasks, talks, _ = make(kind)
    await control_tasks.join()
    async with control_tasks.watching(Recording(), DeploymentOptions()):
        talk = talks[0]
        await eventually(lambda: not talk.stats.empty())
    await control_tasks.leave()

    assert '{"calls":1}' == talk.stats.get_nowait()
    assert [threading.main_thread()] == threads
    [reported] = [thread for word, thread in talk.said if word == "report_routing_stats"]
    assert (kind is SharedControlTasks) == (reported is threading.main_thread())


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parity("G-26", "G-28")
async def test_load_and_stats_are_reported_where_the_deployment_scales(kind: Any):
    class Recording:
        async def record_autoscaling_stats(self) -> dict[str, int]:
            return {"depth": 4}

    control_tasks, talks, _ = make(kind)
    await control_tasks.join()
    options = DeploymentOptions(num_replicas="auto")
    async with control_tasks.watching(Recording(), options, lambda: (2, 5)):
        talk = talks[0]
        await eventually(lambda: talk.loads.qsize() >= 2)
    await control_tasks.leave()

    loads = [talk.loads.get_nowait() for _ in range(talk.loads.qsize())]
    assert {(2, 5)} == {(each.ongoing, each.calls) for each in loads}
    assert {"", '{"depth": 4.0}'} == {each.stats_json for each in loads}
    told = [thread for word, thread in talk.said if word == "report_load"]
    assert {kind is SharedControlTasks} == {thread is threading.main_thread() for thread in told}


async def test_a_deployment_that_does_not_scale_tells_no_load():
    control_tasks, talks, _ = make(SharedControlTasks)
    await control_tasks.join()

    async with control_tasks.watching(object(), DeploymentOptions(), lambda: (2, 5)):
        await asyncio.sleep(0)
    await control_tasks.leave()

    assert talks[0].loads.empty()


@pytest.mark.slow
@pytest.mark.parity("S-55")
async def test_a_check_that_the_blocked_loop_does_not_answer_fails_in_time():
    class Healthy:
        async def check_health(self) -> None:
            pass

    control_tasks, talks, _ = make(ThreadedControlTasks)
    await control_tasks.join()
    options = DeploymentOptions(health_check_period_s=0.05, health_check_timeout_s=0.1)
    async with control_tasks.watching(Healthy(), options):
        # Blocks this loop, as careless user code does, until the checks have failed.
        wait_until(lambda: talks[0].reports)
        assert [False] == talks[0].reports[:1]
        while True not in talks[0].reports:  # noqa: ASYNC110  # reports come from a thread
            await asyncio.sleep(0.02)
    await control_tasks.leave()
