"""Whom the native router picks, over real connections to replicas that do as they are told."""

from __future__ import annotations

import asyncio
import time
from collections import Counter

import grpc
import pytest

from tests.support.waiting import eventually
from tests.unit.routing.native_fleet import FakeReplica, Router, fleet


@pytest.mark.parity("S-50")
async def test_calls_fill_the_node_then_the_zone_then_the_rest_and_come_back() -> None:
    near = FakeReplica("near", places=1, node="here", zone="home")
    middle = FakeReplica("middle", places=1, node="there", zone="home")
    far = FakeReplica("far", places=1, node="there", zone="abroad")
    replicas = (far, middle, near)
    options = {"prefer_local_node": True, "prefer_local_zone": True}

    async with fleet(*replicas, options=options) as (router,):
        held = []
        for expected in ([0, 0, 1], [0, 1, 1], [1, 1, 1]):
            held.append(router.call(hold=True))
            await eventually(lambda: len(held) == sum(each.began for each in replicas))
            assert expected == [each.began for each in replicas]
        last = router.call()
        await eventually(lambda: 1 == router.stat("parked"))
        middle.is_open.set()
        assert b"middle" == await last
        near.is_open.set()
        far.is_open.set()
        assert [b"near", b"middle", b"far"] == [await call for call in held]
        assert [b"near"] * 20 == [await router.call() for _ in range(20)]


@pytest.mark.parity("G-70")
async def test_the_less_loaded_of_two_that_are_drawn_is_taken() -> None:
    """Of 2, 1 and 0 calls: the most never wins, the fewest wins two draws of three."""
    replicas = [FakeReplica(name) for name in ("most", "some", "none")]
    options = {"policy": "p2c"}

    async with fleet(*replicas, options=options) as (router,):
        held = [router.call(hold=True, pinned_to=name) for name in ("most", "most", "some")]
        await eventually(lambda: [2, 1, 0] == [each.began for each in replicas])
        went = Counter([await router.call() for _ in range(300)])
        assert 0 == went[b"most"]
        # Six standard deviations around 100.
        assert 51 <= went[b"some"] <= 149
        for replica in replicas:
            replica.is_open.set()
        await asyncio.gather(*held)


# With these nothing is looked at a second time: only events help.
NEVER_AGAIN = {"initial_backoff_s": 600.0, "max_backoff_s": 600.0}


@pytest.mark.parity("S-48")
async def test_a_place_that_becomes_free_is_used_long_before_the_backoff_ends() -> None:
    """Another router had the place, so this one was refused, and hears of it by a lease."""
    replica = FakeReplica("only", places=1)
    async with fleet(replica, options=NEVER_AGAIN, routers=2) as (other, router):
        first = other.call(hold=True)
        await eventually(lambda: 1 == replica.began)
        second = router.call()
        await eventually(lambda: (1, 1) == (router.stat("refusals"), router.stat("parked")))
        replica.is_open.set()
        assert [b"only", b"only"] == await asyncio.wait_for(asyncio.gather(first, second), 10)


@pytest.mark.parity("S-48")
async def test_a_replica_that_gives_no_sign_is_tried_again_after_the_backoff() -> None:
    """Nobody listens there, so no event can report a listener."""
    replica = FakeReplica("late")
    await replica.start()
    await replica.server.stop(0)
    options = {"initial_backoff_s": 0.05, "max_backoff_s": 0.1}

    router = Router([replica], options, seed=1)
    try:
        call = router.call()
        await eventually(lambda: 3 <= router.stat("connect_failures"))
        await replica.start(replica.port)
        assert b"late" == await asyncio.wait_for(call, 10)
    finally:
        router.native.close()
        await replica.server.stop(0)


@pytest.mark.parity("G-73")
async def test_scarce_places_are_handed_out_instead_of_fought_for() -> None:
    """Four routers of four clients share two places; a call that lost would wait for minutes."""
    replicas = [FakeReplica(name, places=1, work_s=0.02) for name in ("a", "b")]
    async with fleet(*replicas, options=NEVER_AGAIN, routers=4) as routers:

        async def client(router: Router) -> float:
            began = time.monotonic()
            for _ in range(8):
                await router.call()
            return time.monotonic() - began

        clients = [client(router) for router in routers for _ in range(4)]
        took_s = await asyncio.gather(*clients)
        # 64 calls of 20 ms one after the other: nobody waited for much else, and all about as long.
        # The machine may be busy.
        assert max(took_s) < 30
        assert max(took_s) < 2 * min(took_s)
        assert [64, 64] == pytest.approx([each.began for each in replicas], abs=16)
        # One each: who has ended a call takes its place to be free, which others were promised.
        assert sum(router.stat("refusals") for router in routers) <= 1.5 * 128


@pytest.mark.parity("G-71")
async def test_turns_go_round_and_leave_out_who_is_full() -> None:
    replicas = [FakeReplica(name, places=1) for name in ("a", "b", "c")]
    options = {"policy": "round_robin"}

    async with fleet(*replicas, options=options) as (router,):
        went = [await router.call() for _ in range(6)]
        assert went[:3] == went[3:]
        assert [b"a", b"b", b"c"] == sorted(went[:3])
        held = router.call(hold=True, pinned_to="b")
        await eventually(lambda: 1 == router.stat("in_flight_total"))
        assert {b"a": 5, b"c": 5} == Counter([await router.call() for _ in range(10)])
        replicas[1].is_open.set()
        await held


@pytest.mark.parity("S-47", "S-69")
async def test_retries_and_ejections_are_made_and_counted() -> None:
    replicas = [FakeReplica("well"), FakeReplica("sick", is_sick=True)]
    options: dict[str, str | float] = {
        "policy": "round_robin",
        "max_attempts": 2,
        "ejection_fall": 3,
    }

    async with fleet(*replicas, options=options) as (router,):
        assert [b"well"] * 30 == [await router.call() for _ in range(30)]
        assert 3 == replicas[1].began
        counts = {name: router.stat(name) for name in ("retries", "ejections", "sent")}
        assert {"retries": 3, "ejections": 1, "sent": 33} == counts


@pytest.mark.parity("S-47")
async def test_what_the_budget_has_nothing_for_is_not_repeated_and_counted() -> None:
    """Ten in ten seconds are always allowed; five attempts each would make 160."""
    replicas = [FakeReplica(name, is_sick=True) for name in ("a", "b")]
    options = {"max_attempts": 5, "ejection_fall": 0, "initial_backoff_s": 1e-3}

    async with fleet(*replicas, options=options) as (router,):
        codes = await asyncio.gather(*(router.call().code() for _ in range(40)))
        assert {grpc.StatusCode.UNAVAILABLE} == set(codes)
        assert 10 == router.stat("retries")
        assert 50 == router.stat("sent") == sum(replica.began for replica in replicas)
        assert router.stat("retries_refused") >= 30


async def test_calls_that_hear_nothing_in_time_are_counted_as_late() -> None:
    async with fleet(FakeReplica("slow")) as (router,):
        with pytest.raises(grpc.aio.AioRpcError):
            await router.call(hold=True, timeout_s=0.5)
        await eventually(lambda: 1 == router.stat("late"))


async def test_a_call_that_is_slower_than_the_others_gets_a_second_replica() -> None:
    replicas = [FakeReplica("a"), FakeReplica("b")]
    options = {"hedging": True, "max_attempts": 2}

    async with fleet(*replicas, options=options) as (router,):
        for _ in range(200):
            await router.call()
        before = [replica.began for replica in replicas]
        hedges = router.stat("hedges")
        call = router.call(hold=True)
        await eventually(lambda: [each + 1 for each in before] == [r.began for r in replicas])
        assert hedges + 1 == router.stat("hedges")
        replicas[0].is_open.set()
        assert b"a" == await call
