"""A controller's records of ingresses in processes of their own, and its questions to them."""

from __future__ import annotations

import asyncio

import pytest

from pyserve.control.server import ingresses as module
from pyserve.control.server.ingresses import Ingresses, RegisteredIngress
from pyserve.wire.v1 import control_pb2, ingress_pb2

TIMEOUT_S = 30.0


class Clock:
    """Unix time that a test sets."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def ingresses(clock: Clock) -> Ingresses:
    return Ingresses(clock=clock)


def status(name: str, state: str = "HEALTHY", **fields: object) -> control_pb2.IngressStatus:
    message = control_pb2.IngressStatus(id=name, node=f"node-{name}", pid=7, state=state)
    message.addresses.append(f"{name}:8000")
    for field, value in fields.items():
        setattr(message, field, value)
    return message


def say(
    ingresses: Ingresses,
    registered: RegisteredIngress,
    said: control_pb2.IngressStatus,
    answers: int = 0,
) -> None:
    ingresses.hear(registered, ingress_pb2.IngressMessage(answers=answers, status=said))


async def command_of(registered: RegisteredIngress) -> ingress_pb2.IngressCommand:
    async with asyncio.timeout(TIMEOUT_S):
        command = await registered.next()
    assert command is not None
    return command


def states(ingresses: Ingresses) -> dict[str, str]:
    return {each.node: each.state for each in ingresses.statuses()}


@pytest.mark.parity("G-65")
async def test_each_state_is_told_with_its_time_and_reason(
    ingresses: Ingresses, clock: Clock
) -> None:
    """STARTING, HEALTHY, DRAINING and DRAINED are its own word; UNHEALTHY is the controller's."""
    a = ingresses.attend(status("a", "STARTING"))
    told = []

    def tell() -> None:
        (found,) = ingresses.statuses()
        told.append((found.state, found.since, found.message))

    tell()
    for state in ("HEALTHY", "HEALTHY", "DRAINING", "DRAINED"):
        clock.now += 1
        say(ingresses, a, status("a", state))
        tell()
    clock.now += 1
    ingresses.leave(a)
    tell()

    assert [
        ("STARTING", 1000.0, ""),
        ("HEALTHY", 1001.0, ""),
        ("HEALTHY", 1001.0, ""),
        ("DRAINING", 1003.0, ""),
        ("DRAINED", 1004.0, ""),
        ("DRAINED", 1004.0, ""),
    ] == told


@pytest.mark.parity("G-65")
async def test_lost_ingress_is_unhealthy_until_one_of_its_node_comes(
    ingresses: Ingresses, clock: Clock
) -> None:
    a = ingresses.attend(status("a", in_flight=3))
    clock.now += 5
    ingresses.leave(a)
    (lost,) = ingresses.statuses()

    assert ("UNHEALTHY", 1005.0, 0) == (lost.state, lost.since, lost.in_flight)
    assert "the controller has lost it" in lost.message
    assert () == ingresses.addresses()

    successor = status("b")
    successor.node = "node-a"
    ingresses.attend(successor)

    assert {"node-a": "HEALTHY"} == states(ingresses)
    assert ("b:8000",) == ingresses.addresses()


async def test_gone_ingress_is_forgotten_after_a_minute(ingresses: Ingresses, clock: Clock) -> None:
    ingresses.leave(ingresses.attend(status("a")))
    clock.now += 59
    assert {"node-a": "UNHEALTHY"} == states(ingresses)
    clock.now += 2
    assert {} == states(ingresses)


async def test_flood_of_ingresses_that_come_and_go_is_bounded(ingresses: Ingresses) -> None:
    for number in range(300):
        ingresses.leave(ingresses.attend(status(f"i{number}")))

    assert 100 == len(ingresses.statuses())


async def test_state_of_a_newer_version_is_no_error(ingresses: Ingresses) -> None:
    ingresses.attend(status("a", "MEDITATING"))

    assert {"node-a": "UNHEALTHY"} == states(ingresses)


@pytest.mark.parity("G-65")
async def test_ingress_that_does_not_answer_is_unhealthy_until_it_does(
    ingresses: Ingresses, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_LOOK_TIMEOUT_S", 0.02)
    a, b = ingresses.attend(status("a")), ingresses.attend(status("b"))
    look = asyncio.create_task(ingresses.look())
    asked = await command_of(b)
    say(ingresses, b, status("b", in_flight=2), asked.number)
    await look

    assert {"node-a": "UNHEALTHY", "node-b": "HEALTHY"} == states(ingresses)
    assert 2 == ingresses.total().in_flight
    # Nobody waits for one that does not answer.
    visible = asyncio.create_task(ingresses.visible(5))
    shown = await command_of(b)
    assert 5 == shown.show.version
    say(ingresses, b, status("b"), shown.number)
    await asyncio.wait_for(visible, TIMEOUT_S)
    say(ingresses, a, status("a"))
    assert "HEALTHY" == states(ingresses)["node-a"]


async def test_view_is_visible_when_those_that_take_calls_have_it(ingresses: Ingresses) -> None:
    a, draining = ingresses.attend(status("a")), ingresses.attend(status("b", "DRAINING"))
    visible = asyncio.create_task(ingresses.visible(9))
    shown = await command_of(a)

    assert ("show", 9) == (shown.WhichOneof("kind"), shown.show.version)
    assert not visible.done()
    say(ingresses, a, status("a"), shown.number)
    await asyncio.wait_for(visible, TIMEOUT_S)
    # One that drains takes nothing new, so it was not asked.
    draining.end()
    assert await draining.next() is None


async def test_wait_ends_with_the_ingress(ingresses: Ingresses) -> None:
    a = ingresses.attend(status("a"))
    waiting = asyncio.create_task(ingresses.visible(2))
    await command_of(a)
    ingresses.leave(a)

    await asyncio.wait_for(waiting, TIMEOUT_S)


async def test_ingress_that_reads_nothing_loses_its_stream(ingresses: Ingresses) -> None:
    a = ingresses.attend(status("a"))
    for _ in range(64):
        a.send(ingress_pb2.IngressCommand())
    await asyncio.wait_for(ingresses.visible(2), TIMEOUT_S)

    read = 0
    while await a.next() is not None:
        read += 1
    assert 63 == read


async def test_settings_reach_those_who_come_later(ingresses: Ingresses) -> None:
    early = ingresses.attend(status("a"))
    ingresses.set_request_timeout(2.5)
    late = ingresses.attend(status("b"))

    for each in (early, late):
        assert 2.5 == (await command_of(each)).settings.request_timeout_s


async def test_drain_waits_for_all_and_holds_for_those_who_come_later(
    ingresses: Ingresses,
) -> None:
    a = ingresses.attend(status("a"))
    drain = asyncio.create_task(ingresses.drain(3.0, TIMEOUT_S))
    asked = await command_of(a)

    assert 3.0 == asked.drain.grace_s
    assert not drain.done()
    late = ingresses.attend(status("b"))
    assert 3.0 == (await command_of(late)).drain.grace_s
    say(ingresses, a, status("a", "DRAINED"), asked.number)
    await asyncio.wait_for(drain, TIMEOUT_S)


async def test_total_adds_up_who_is_connected(ingresses: Ingresses) -> None:
    for name, rest in (("a", 1), ("b", 10)):
        part = status(name, in_flight=rest, parked=rest, speaks_tls=name == "b")
        part.counts["connections"] = rest
        part.in_flight_of_replica["Echo#1"] = rest
        ingresses.attend(part)
    total = ingresses.total()

    assert (11, 11, True) == (total.in_flight, total.parked, total.speaks_tls)
    assert {"connections": 11} == dict(total.counts)
    assert {"Echo#1": 11} == dict(total.in_flight_of_replica)
    assert ("a:8000", "b:8000") == ingresses.addresses()
