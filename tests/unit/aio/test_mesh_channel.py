"""Attempts to reach a controller, and the pauses between them."""

from __future__ import annotations

import socket

import pytest

from pyserve.aio import mesh_channel
from pyserve.aio.mesh_channel import Redial, dial, is_reached

_JITTER = 0.2


def test_pauses_double_up_to_two_seconds() -> None:
    redial = Redial()
    pauses_s = [redial.next_s() for _ in range(8)]
    wanted_s = [0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 2.0, 2.0]
    assert [pytest.approx(each, rel=_JITTER) for each in wanted_s] == pauses_s


def test_success_makes_the_next_pause_short_again() -> None:
    redial = Redial()
    for _ in range(5):
        redial.next_s()
    redial.reset()
    assert pytest.approx(0.05, rel=_JITTER) == redial.next_s()


def test_processes_that_lost_one_controller_do_not_return_at_one_instant() -> None:
    assert len({Redial().next_s() for _ in range(20)}) > 1


async def test_an_attempt_that_nobody_answers_is_over_soon(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """gRPC's own would wait for 20 s. A full backlog swallows what comes, as a gone pod does."""
    monkeypatch.setattr(mesh_channel, "_REACHED_WITHIN_S", 0.2)
    with socket.socket() as listener, socket.socket() as first:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        first.connect(listener.getsockname())
        async with dial(f"127.0.0.1:{listener.getsockname()[1]}") as channel:
            assert not await is_reached(channel)
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        async with dial(f"127.0.0.1:{listener.getsockname()[1]}") as channel:
            assert await is_reached(channel)
