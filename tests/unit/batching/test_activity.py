"""What a batcher tells routers: the step that runs, the one that waits, what steps cost."""

import asyncio

import pytest

import pyserve
from pyserve.batching import StepState
from pyserve.batching import queue as queue_module
from pyserve.batching.steps import Activity
from tests.unit.batching.virtual import run_virtually


@pytest.fixture
def states(monkeypatch: pytest.MonkeyPatch) -> list[StepState | None]:
    """The events that the listener of the process has received."""
    heard: list[StepState | None] = []
    activity = Activity()
    activity.listen(heard.append)
    monkeypatch.setattr(queue_module, "PROCESS_ACTIVITY", activity)
    return heard


class Steps:
    """A step takes 10 ms, and 1 ms for each item."""

    @pyserve.batch(max_batch_size=4, batch_wait_timeout_s=0.005)
    async def run(self, items: list[int]) -> list[int]:
        await asyncio.sleep(0.010 + 0.001 * len(items))
        return items

    @pyserve.batch(max_batch_size=2, batch_wait_timeout_s=0)
    async def other(self, items: list[int]) -> list[int]:
        return items


def test_the_first_that_waits_opens_a_window_and_the_step_keeps_the_executor_busy(
    states: list[StepState | None],
) -> None:
    async def main() -> None:
        await asyncio.create_task(Steps().run(1))

    run_virtually(main())
    waiting, running, ended = (state for state in states if state is not None)
    assert (4, 0, None) == (waiting.size_max, waiting.running, waiting.busy_s)
    assert 0.005 == pytest.approx(waiting.window_s)
    # Nothing is known of the time that a step takes.
    assert (1, 0.0, None) == (running.running, running.busy_s, running.window_s)
    assert (0, None, None) == (ended.running, ended.busy_s, ended.window_s)


def test_the_end_of_a_step_is_expected_from_those_before(states: list[StepState | None]) -> None:
    async def main() -> None:
        steps = Steps()
        for size in (1, 4, 2, 3, 1, 4, 2, 3, 4):
            await asyncio.gather(*(steps.run(item) for item in range(size)))

    run_virtually(main())
    last = [state for state in states if state is not None and state.running == 4][-1]
    assert 0.014 == pytest.approx(last.busy_s, rel=0.05)
    assert 0.010 == pytest.approx(last.step_fixed_s, rel=0.1)
    assert 0.001 == pytest.approx(last.step_per_call_s, rel=0.3)


def test_two_batchers_say_nothing(states: list[StepState | None]) -> None:
    async def main() -> None:
        steps = Steps()
        await steps.run(1)
        await steps.other(1)
        ended = len(states)
        await steps.run(1)
        await steps.other(1)
        assert (None, ended) == (states[-1], len(states))

    run_virtually(main())


def test_a_new_listener_ends_the_reports_of_the_one_before() -> None:
    activity = Activity()
    first: list[StepState | None] = []
    second: list[StepState | None] = []
    activity.listen(first.append)
    activity.listen(second.append)
    queue = Steps()
    state = StepState(
        size_max=4, running=0, busy_s=None, window_s=None, step_fixed_s=0.0, step_per_call_s=0.0
    )
    activity.report(queue, state)
    assert ([None], [state]) == (first, second)
