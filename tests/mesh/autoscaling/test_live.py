"""A step of the load and calls at zero, as the benchmark of live autoscaling measures them."""

from __future__ import annotations

import pytest

from benchmarks.autoscaling_live import DECISION_S_MAX, from_zero, step

pytestmark = pytest.mark.slow
# The machine of the tests has other work; ``make bench NAME=autoscaling-live`` has the targets.
_SLACK_S = 2.0


@pytest.mark.parity("G-24", "G-26")
@pytest.mark.usefixtures("mesh")
async def test_a_step_is_decided_within_a_second_and_no_call_fails() -> None:
    outcome = await step(3)

    assert {} == outcome.failed
    assert outcome.calls > 3 * outcome.ready_s, "calls came all the while"
    assert outcome.decision_s <= DECISION_S_MAX + _SLACK_S
    assert outcome.decision_s < outcome.ready_s


@pytest.mark.parity("G-25")
@pytest.mark.usefixtures("mesh")
async def test_a_call_at_zero_takes_little_more_than_the_start_of_a_replica() -> None:
    for outcome in await from_zero(2, rest_s=0.0):
        assert 0 < outcome.start_s < outcome.answered_s <= outcome.start_s + _SLACK_S
