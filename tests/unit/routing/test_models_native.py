"""Where the native router sends calls that name a model, over real connections."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import grpc
import pytest

from pyserve import _router, aio
from pyserve.aio import ServerSettings
from pyserve.bridge import running_endpoint
from pyserve.wire.v1 import mesh_pb2
from tests.support.routes import native_route, replica_view
from tests.support.waiting import eventually

_TARGET, _PATH = "app/Echo", "/app.Echo/Call"
_TOKEN = b"token"
_TIMEOUT_S = 30.0

Call = grpc.aio.UnaryUnaryCall[bytes, bytes]


@dataclass
class Replica:
    """Answers a call with its own id, once the test says so."""

    id: str
    models: list[str] = field(default_factory=list)  # of the calls, as they came
    may_answer: asyncio.Event = field(default_factory=asyncio.Event)

    async def start(self) -> None:
        settings = ServerSettings(replica_id=self.id, token=_TOKEN)
        self.server = aio.Server(settings=settings, maximum_concurrent_rpcs=100)
        handlers: dict[str, grpc.RpcMethodHandler[bytes, bytes]] = {
            "Call": grpc.unary_unary_rpc_method_handler(self._call)
        }
        generic = grpc.method_handlers_generic_handler("app.Echo", handlers)
        self.server.add_generic_rpc_handlers((generic,))
        self.port = self.server.add_insecure_port("127.0.0.1:0")
        await self.server.start()

    async def _call(self, _request: bytes, context: aio.ServicerContext) -> bytes:
        metadata = dict(context.invocation_metadata() or ())
        self.models.append(str(metadata.get("multiplexed_model_id", "")))
        await self.may_answer.wait()
        return self.id.encode()

    def view(self, capacity: int) -> mesh_pb2.ReplicaView:
        return replica_view(self.id, self.port, capacity, node=f"node-of-{self.id}")


class Mesh:
    """Two replicas of one deployment, a table that knows them, and a channel to them."""

    def __init__(self, replicas: Sequence[Replica], capacity: int, matching_timeout_s: float):
        self.replicas = replicas
        self.table = _router.RoutingTable(node="n", zone="", token=_TOKEN, seed=1)
        route = native_route(
            [replica.view(capacity) for replica in replicas],
            {"app.Echo": None},
            options={"model_matching_timeout_s": matching_timeout_s},
        )
        self.table.apply(1, [route])
        self.native = _router.Channel(_TARGET, table=self.table)
        self.channel = aio.Channel(self.native)

    def call(self, model_id: str, replica_id: str = "") -> Call:
        channel = aio.Channel(self.native, replica_id=replica_id) if replica_id else self.channel
        metadata = (("multiplexed_model_id", model_id),) if model_id else ()
        call: Call = channel.unary_unary(_PATH)(b"", metadata=metadata, timeout=_TIMEOUT_S)
        return call

    def held(self) -> list[int]:
        return [len(replica.models) for replica in self.replicas]

    def reported(self) -> list[list[str]]:
        return [models for _id, _node, models in self.table.replicas(_TARGET)]

    def stats(self) -> dict[str, object]:
        return self.table.stats()[_TARGET]

    async def answered(self, calls: Sequence[Call]) -> list[bytes]:
        """Lets the replicas answer everything from now on."""
        for replica in self.replicas:
            replica.may_answer.set()
        return await asyncio.gather(*calls)

    async def learn(self, *models: Sequence[str]) -> None:
        """Let the replicas report these models, and a first call open the ear for them."""
        for replica, ids in zip(self.replicas, models, strict=True):
            replica.server.native.set_models(ids)
        opener = self.call("opener")
        await eventually(lambda: [sorted(ids) for ids in models] == self.reported())
        opener.cancel()
        await eventually(lambda: 0 == self.stats()["in_flight_total"])
        for replica in self.replicas:
            replica.models.clear()


@asynccontextmanager
async def mesh(capacity: int = 100, matching_timeout_s: float = 1.0) -> AsyncIterator[Mesh]:
    replicas = [Replica("r-1"), Replica("r-2")]
    for replica in replicas:
        await replica.start()
    made = Mesh(replicas, capacity, matching_timeout_s)
    try:
        yield made
    finally:
        made.native.close()
        for replica in replicas:
            await replica.server.stop(0)


@pytest.mark.parity("S-31")
async def test_calls_go_to_the_replica_that_reported_their_model() -> None:
    """Tier 1: whatever the load, among the replicas with room."""
    async with mesh() as running:
        await running.learn(["a"], ["b", "c"])
        calls = [running.call(model_id) for model_id in ["a", "b", "c", "b", "a", "a"] * 5]
        answers = await running.answered(calls)
        assert [b"r-1", b"r-2", b"r-2", b"r-2", b"r-1", b"r-1"] * 5 == answers
        assert {"a"} == set(running.replicas[0].models)


@pytest.mark.parity("S-31")
async def test_a_burst_for_a_cold_model_goes_to_one_replica() -> None:
    """Tier 3: it is decided once, before any report; the other replica loads nothing."""
    async with mesh() as running:
        calls = [running.call("cold") for _ in range(20)]
        await eventually(lambda: 20 == sum(running.held()))
        assert [0, 20] == sorted(running.held())
        assert 1 == len(set(await running.answered(calls)))


@pytest.mark.parity("S-31")
async def test_a_cold_model_goes_where_the_fewest_are() -> None:
    async with mesh() as running:
        await running.learn(["a", "b"], ["c"])
        assert [b"r-2"] == await running.answered([running.call("cold")])


@pytest.mark.parity("S-32")
async def test_a_call_waits_for_the_holder_of_its_model_beside_an_idle_replica() -> None:
    """Tier 2: the wait ends when a place at the holder is free."""
    async with mesh(capacity=1, matching_timeout_s=60.0) as running:
        await running.learn(["a"], [])
        first = running.call("a")
        await eventually(lambda: [1, 0] == running.held())
        second = running.call("a")
        await eventually(lambda: 1 == running.stats()["waiting_for_model"])
        other = running.call("")
        await eventually(lambda: [1, 1] == running.held())
        assert [b"r-1", b"r-1", b"r-2"] == await running.answered([first, second, other])


@pytest.mark.parity("S-31", "S-32")
async def test_the_wait_for_a_holder_ends_with_the_matching_timeout() -> None:
    """Then any replica with room will do."""
    async with mesh(capacity=1, matching_timeout_s=0.05) as running:
        await running.learn(["a"], [])
        calls = [running.call("a"), running.call("a")]
        await eventually(lambda: [1, 1] == running.held())
        assert {b"r-1", b"r-2"} == set(await running.answered(calls))


async def test_a_pinned_call_goes_to_its_replica_or_fails_naming_it() -> None:
    async with mesh(capacity=1) as running:
        calls = [running.call("", replica_id="r-2") for _ in range(3)]
        await eventually(lambda: [0, 3] == running.held())
        assert [b"r-2"] * 3 == await running.answered(calls)
        with pytest.raises(grpc.aio.AioRpcError) as failure:
            await running.call("", replica_id="r-9")
        assert grpc.StatusCode.UNAVAILABLE == failure.value.code()
        assert 'app/Echo has no replica "r-9"' == failure.value.details()


@dataclass
class Receiver:
    """Waits for the one event of a token."""

    event: asyncio.Future[tuple[int, object, object]] = field(
        default_factory=lambda: asyncio.get_running_loop().create_future()
    )

    def on_event(self, kind: int, subject: object, payload: object) -> None:
        self.event.set_result((kind, subject, payload))

    def abandon(self) -> None:
        self.event.cancel()


async def choose(
    running: Mesh, model_id: str, timeout_s: float = _TIMEOUT_S
) -> tuple[int, object, object]:
    endpoint, receiver = running_endpoint(), Receiver()
    token, is_first = running.native.choose(endpoint.raw, _PATH, timeout_s, model_id)
    endpoint.receivers[token] = receiver
    if is_first:
        endpoint.schedule_flush()
    try:
        return await receiver.event
    finally:
        endpoint.receivers.pop(token, None)


async def test_a_chosen_place_is_held_until_it_is_used_released_or_dropped() -> None:
    async with mesh(capacity=1) as running:
        await running.learn([], ["a"])
        kind, place, payload = await choose(running, "a")
        assert isinstance(place, _router.Reservation)
        assert (_router.CHOSEN, None) == (kind, payload)
        assert ("r-2", "node-of-r-2") == (place.replica_id, place.node)
        assert {"r-1": 0, "r-2": 1} == running.stats()["in_flight"]
        place.release()
        assert {"r-1": 0, "r-2": 0} == running.stats()["in_flight"]
        _kind, place, _payload = await choose(running, "")
        assert 1 == running.stats()["in_flight_total"]
        del place
        # The loop's current step may hold it for one more turn.
        await eventually(lambda: 0 == running.stats()["in_flight_total"])


async def test_a_call_takes_the_chosen_place() -> None:
    async with mesh(capacity=1) as running:
        await running.learn([], ["a"])
        _kind, place, _payload = await choose(running, "a")
        assert isinstance(place, _router.Reservation)
        endpoint, receiver = running_endpoint(), Receiver()
        call = running.native.start_call(
            endpoint.raw, _PATH, (), _TIMEOUT_S, b"", 0, False, False, reservation=place
        )
        endpoint.receivers[call.token] = receiver
        if call.started:
            endpoint.schedule_flush()
        await eventually(lambda: [0, 1] == running.held())
        assert {"r-1": 0, "r-2": 1} == running.stats()["in_flight"]
        running.replicas[1].may_answer.set()
        assert (_router.DONE, None, b"r-2") == await receiver.event


async def test_a_choice_that_finds_no_place_in_time_ends_with_its_status() -> None:
    async with mesh(capacity=1) as running:
        places = [await choose(running, "") for _ in range(2)]
        kind, code, details = await choose(running, "", timeout_s=0.05)
        assert (_router.DONE, grpc.StatusCode.DEADLINE_EXCEEDED.value[0]) == (kind, code)
        assert details.startswith("app/Echo: the deadline passed before a replica was free")
        assert 2 == len(places)


async def test_only_channels_with_a_table_choose() -> None:
    channel = _router.Channel("127.0.0.1:1")
    endpoint = running_endpoint()
    with pytest.raises(ValueError, match="only with a table"):
        channel.choose(endpoint.raw, _PATH, None, "")
    with pytest.raises(ValueError, match="only with a table"):
        channel.start_call(endpoint.raw, _PATH, (), None, b"", 0, False, False, replica_id="r")
    channel.close()


def test_a_target_without_a_slash_names_no_deployment() -> None:
    table = _router.RoutingTable(node="", zone="", token=b"", seed=1)
    with pytest.raises(ValueError, match="write application/Deployment"):
        table.replicas("Echo")
    assert [] == table.replicas("app/Unknown")
