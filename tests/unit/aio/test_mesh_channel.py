"""The pauses between attempts to reach a controller."""

from __future__ import annotations

import pytest

from pyserve.aio.mesh_channel import Redial

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
