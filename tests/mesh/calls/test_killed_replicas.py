"""Replicas that die, or have no room, under calls: what started there fails, all else goes on."""

from __future__ import annotations

import asyncio
import os
import signal
from collections import Counter

import grpc
import grpc.aio
import pytest

from pyserve.driver.status import ReplicaStatus
from services.echo import echo_pb2, echo_pb2_grpc
from tests.mesh.calls.mesh import ANSWER_TIMEOUT_S, RESTART_TIMEOUT_S, EchoMesh, echo_mesh
from tests.support.waiting import eventually

pytestmark = [pytest.mark.slow, pytest.mark.alone]

DESCRIBE = echo_pb2.PerformRequest(describe=True)
SLOW = echo_pb2.PerformRequest(describe=True, delay_s=0.8)
HOLD = echo_pb2.PerformRequest(delay_s=600)


PerformCall = grpc.aio.UnaryUnaryCall[echo_pb2.PerformRequest, echo_pb2.PerformReply]


class Answers:
    """Counts how often each call ends, and keeps how."""

    def __init__(self) -> None:
        self._ends: Counter[grpc.aio.Call] = Counter()
        self._calls: list[PerformCall] = []

    def watch(self, call: PerformCall) -> PerformCall:
        self._calls.append(call)
        call.add_done_callback(lambda _: self._ends.update([call]))
        return call

    async def codes(self) -> Counter[grpc.StatusCode]:
        """Wait for all; each has ended exactly once."""
        codes = Counter(await asyncio.gather(*(call.code() for call in self._calls)))
        await eventually(lambda: len(self._ends) == len(self._calls))
        assert {1} == set(self._ends.values())
        return codes

    async def pids(self) -> Counter[int]:
        """Return the processes that answered, with the number of their answers."""
        good = [call for call in self._calls if await call.code() is grpc.StatusCode.OK]
        return Counter([(await call).facts.pid for call in good])


async def running(
    stub: echo_pb2_grpc.EchoAsyncStub, *metadata: tuple[str, str | bytes]
) -> grpc.aio.Call:
    """Return a call whose handler has begun, and does not end."""
    request = echo_pb2.PerformStreamRequest(messages=1, each=HOLD)
    call = stub.PerformStream(request, metadata=[("echo-initial-begun", "yes"), *metadata])
    async with asyncio.timeout(ANSWER_TIMEOUT_S):
        await call.initial_metadata()
    return call


def kill(replica: ReplicaStatus) -> None:
    os.kill(replica.pid, signal.SIGKILL)


async def restarted(mesh: EchoMesh, replicas: int, without: ReplicaStatus) -> None:
    """Wait until so many replicas serve again."""

    def is_back() -> bool:
        serving = mesh.replicas()
        return len(serving) == replicas and without not in serving

    await eventually(is_back, RESTART_TIMEOUT_S, "a new replica serves")


async def connected(mesh: EchoMesh, replicas: int) -> None:
    """Call until so many replicas have answered."""
    pids: set[int] = set()
    async with asyncio.timeout(ANSWER_TIMEOUT_S):
        while len(pids) < replicas:
            pids.add((await mesh.stub.Perform(DESCRIBE)).facts.pid)


async def test_only_calls_at_the_dead_replica_fail_and_parked_ones_go_elsewhere() -> None:
    async with echo_mesh(num_replicas=2, max_ongoing_requests=4) as mesh:
        # A call that waits for a connection has not started, and would go elsewhere.
        await connected(mesh, 2)
        answers = Answers()
        for _ in range(20):
            answers.watch(mesh.stub.Perform(SLOW, timeout=ANSWER_TIMEOUT_S))
        await mesh.sent(8)
        await mesh.parked(12)
        victim, survivor = mesh.replicas()
        kill(victim)
        codes = await answers.codes()
        assert {grpc.StatusCode.UNAVAILABLE: 4, grpc.StatusCode.OK: 16} == codes
        pids = await answers.pids()
        assert victim.pid not in pids
        assert pids[survivor.pid] >= 4
        await restarted(mesh, 2, victim)
        await mesh.settled()


async def test_after_a_death_is_seen_no_call_fails_and_the_new_replica_takes_its_share() -> None:
    """Also while the dead one is still in the routing table: it cannot be connected to."""
    async with echo_mesh(num_replicas=2) as mesh:
        victim, survivor = mesh.replicas()
        answers = Answers()
        holders = []
        while not mesh.router_in_flight().get(victim.replica_id):
            holders.append(mesh.stub.Perform(HOLD))
            await mesh.sent(len(holders))
        kill(victim)
        done, _ = await asyncio.wait(
            [asyncio.ensure_future(call.code()) for call in holders],
            timeout=ANSWER_TIMEOUT_S,
            return_when=asyncio.FIRST_COMPLETED,
        )
        assert {grpc.StatusCode.UNAVAILABLE} == {code.result() for code in done}
        for _ in range(200):
            await answers.watch(mesh.stub.Perform(DESCRIBE, timeout=ANSWER_TIMEOUT_S))
        assert {grpc.StatusCode.OK: 200} == await answers.codes()
        assert victim.pid not in await answers.pids()

        await restarted(mesh, 2, victim)
        (new,) = (each for each in mesh.replicas() if each != survivor)

        async def new_one_answers() -> bool:
            reply = await mesh.stub.Perform(DESCRIBE, timeout=ANSWER_TIMEOUT_S)
            return bool(reply.facts.pid == new.pid)

        await eventually(new_one_answers)
        for call in holders:
            call.cancel()
        await mesh.settled()


async def test_calls_wait_for_the_next_replica_when_the_only_one_dies() -> None:
    async with echo_mesh(max_ongoing_requests=2) as mesh:
        (victim,) = mesh.replicas()
        lost, waiting = Answers(), Answers()
        for _ in range(2):
            lost.watch(mesh.stub.Perform(HOLD, timeout=ANSWER_TIMEOUT_S))
        await mesh.sent(2)
        for _ in range(10):
            waiting.watch(mesh.stub.Perform(DESCRIBE, timeout=ANSWER_TIMEOUT_S))
        await mesh.parked(10)
        kill(victim)
        assert {grpc.StatusCode.UNAVAILABLE: 2} == await lost.codes()
        waiting.watch(mesh.stub.Perform(DESCRIBE, timeout=ANSWER_TIMEOUT_S))
        assert {grpc.StatusCode.OK: 11} == await waiting.codes()
        (new,) = mesh.replicas()
        assert new.pid != victim.pid
        assert {new.pid: 11} == await waiting.pids()
        await mesh.settled()


async def test_a_stream_that_a_death_cuts_ends_unavailable_after_what_came() -> None:
    each = echo_pb2.PerformRequest(payload=b"x", delay_s=0.05)
    async with echo_mesh() as mesh:
        (victim,) = mesh.replicas()
        call = mesh.stub.PerformStream(
            echo_pb2.PerformStreamRequest(messages=10_000, each=each), timeout=ANSWER_TIMEOUT_S
        )
        assert b"x" == (await anext(aiter(call))).payload
        kill(victim)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            _ = [reply async for reply in call]
        assert grpc.StatusCode.UNAVAILABLE is caught.value.code()
        await restarted(mesh, 1, victim)
        await mesh.settled()


async def test_calls_that_a_full_replica_refuses_go_to_the_other() -> None:
    """Its places are taken past the ingress, whose router cannot know."""
    async with echo_mesh(num_replicas=2, max_ongoing_requests=4) as mesh:
        full, free = mesh.replicas()
        async with mesh.channel_to(full) as channel:
            direct = echo_pb2_grpc.EchoStub(channel)
            holders = [await running(direct, *mesh.proof) for _ in range(4)]
            answers = Answers()
            for _ in range(50):
                await answers.watch(mesh.stub.Perform(DESCRIBE, timeout=ANSWER_TIMEOUT_S))
            assert {grpc.StatusCode.OK: 50} == await answers.codes()
            assert {free.pid: 50} == await answers.pids()
            for call in holders:
                call.cancel()


async def test_calls_that_every_replica_refuses_wait_until_one_has_room() -> None:
    async with echo_mesh(max_ongoing_requests=2) as mesh:
        (replica,) = mesh.replicas()
        async with mesh.channel_to(replica) as channel:
            direct = echo_pb2_grpc.EchoStub(channel)
            holders = [await running(direct, *mesh.proof) for _ in range(2)]
            answers = Answers()
            for _ in range(10):
                answers.watch(mesh.stub.Perform(DESCRIBE, timeout=ANSWER_TIMEOUT_S))
            await eventually(lambda: mesh.status().ingress.in_flight == 10)
            for call in holders:
                call.cancel()
            assert {grpc.StatusCode.OK: 10} == await answers.codes()
