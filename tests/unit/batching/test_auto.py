"""``batch_wait_timeout_s="auto"``: learnt steps, arrivals, callers who come back, deadlines."""

import math
import random

import pytest

from pyserve.batching import Batch, Batcher, BatchOptions, Drop, Reason
from pyserve.batching.auto import Gaps
from pyserve.batching.steps import StepTimes


def taught(fixed_s: float, per_item_s: float, *, runs: int = 60) -> StepTimes:
    steps, draw = StepTimes(), random.Random(1)
    for _ in range(runs):
        size = draw.randint(1, 16)
        steps.learn(size, fixed_s + per_item_s * size)
    return steps


# --- steps -------------------------------------------------------------------------------------


def test_a_line_is_learnt_from_the_runs() -> None:
    steps = taught(0.02, 0.001)
    assert steps.fixed_s == pytest.approx(0.02, rel=0.02)
    assert steps.per_item_s == pytest.approx(0.001, rel=0.05)
    assert steps.predict(32) == pytest.approx(0.052, rel=0.05)


def test_a_model_that_has_become_slower_is_followed() -> None:
    steps = taught(0.02, 0.001)
    for size in list(range(1, 17)) * 12:
        steps.learn(size, 0.04 + 0.002 * size)
    assert steps.predict(8) == pytest.approx(0.056, rel=0.1)


@pytest.mark.parametrize("factor", [0.01, 100.0])
def test_a_jump_is_followed_within_a_few_runs(factor: float) -> None:
    steps = taught(0.02, 0.001)
    for size in (3, 1, 8, 5):
        steps.learn(size, factor * (0.02 + 0.001 * size))
    assert steps.predict(4) == pytest.approx(0.024 * factor, rel=0.1)


def test_what_was_before_a_jump_does_not_bend_the_line_for_long() -> None:
    """One run of a new size, before the jump is recognised, must not look like a slope."""
    steps = StepTimes()
    for _ in range(60):
        steps.learn(3, 0.1)
    for size in [3, 1, 2, 1, 2] * 12:
        steps.learn(size, 0.01)
    assert steps.fixed_s == pytest.approx(0.01)
    assert steps.per_item_s == pytest.approx(0.0)


def test_sizes_that_never_vary_leave_open_what_an_item_costs() -> None:
    steps = StepTimes()
    for _ in range(20):
        steps.learn(4, 0.1)
    assert steps.per_item_s == pytest.approx(0.0)
    assert steps.per_item_most_s == pytest.approx(0.025)
    for size in (1, 8) * 20:
        steps.learn(size, 0.1)
    assert steps.per_item_most_s == pytest.approx(0.0, abs=1e-9)


def test_no_fixed_cost_is_above_what_a_size_took() -> None:
    """Until runs of before a jump are forgotten they bend the line, which the table overrules."""
    steps = StepTimes()
    for _ in range(60):
        steps.learn(64, 1.0)
    for size in (20, 40) * 8:
        steps.learn(size, 0.001 * size)
    assert steps.fixed_s <= 0.021


def test_a_size_of_another_magnitude_teaches_the_slope() -> None:
    steps = StepTimes()
    for _ in range(60):
        steps.learn(64, 1.0)
    assert steps.teaches(8)
    assert not steps.teaches(64)
    steps.learn(8, 0.2)
    assert not steps.teaches(4)


def test_what_a_size_took_long_ago_is_forgotten() -> None:
    """Else batches of that size would be avoided, and never be run to find out."""
    steps = StepTimes()
    for size, duration_s in [(1, 0.01), (2, 0.5), (8, 0.02)] * 20:
        steps.learn(size, duration_s)
    assert steps.predict(2) == pytest.approx(0.5, rel=0.1)
    for size in (1, 8) * 30:
        steps.learn(size, 0.01)
    assert steps.predict(2) == pytest.approx(0.01, rel=0.1)


def test_the_first_run_warms_up_and_does_not_count() -> None:
    steps = StepTimes()
    steps.learn(1, 30.0)
    for _ in range(5):
        steps.learn(1, 0.01)
    assert steps.predict(1) == pytest.approx(0.01)


def test_a_hiccup_counts_as_a_few_steps_only() -> None:
    steps = taught(0.01, 0.0)
    steps.learn(4, 5.0)
    assert steps.predict(4) < 0.015


def test_a_staircase_is_read_from_the_table() -> None:
    """Engines compiled for some sizes pad to the next one: no line fits that."""
    steps, draw = StepTimes(), random.Random(2)
    cost = {1: 0.010, 2: 0.010, 3: 0.080, 4: 0.080, 8: 0.020, 16: 0.090}
    for _ in range(600):
        size = draw.choice(list(cost))
        steps.learn(size, cost[size])
    for size in (2, 4, 8, 16):
        assert steps.predict(size) == pytest.approx(cost[size], rel=0.1)


def test_the_bound_covers_the_tail_of_what_was_seen() -> None:
    steps, draw = StepTimes(), random.Random(3)
    for _ in range(300):
        steps.learn(1, 0.01 if draw.random() < 0.85 else 0.03)
    assert 0.025 < steps.bound(1) < 0.04
    assert steps.predict(1) < 0.015


# --- gaps --------------------------------------------------------------------------------------


def gaps_of(values: list[float]) -> Gaps:
    gaps = Gaps()
    for value in values:
        gaps.note(value)
    return gaps


def test_rare_arrivals_are_not_waited_for() -> None:
    assert gaps_of([0.05] * 64).wait_s(1, 0.001) == 0.0


def test_dense_arrivals_are_waited_for_by_few_items_only() -> None:
    """The gain of a newcomer pays for some who wait, not for many."""
    gaps = gaps_of([0.001] * 64)
    assert gaps.wait_s(1, 0.005) == 0.001
    assert gaps.wait_s(4, 0.005) == 0.001
    assert gaps.wait_s(6, 0.005) == 0.0


def test_the_rest_of_a_burst_is_waited_for_and_the_next_burst_is_not() -> None:
    gaps = gaps_of([0.0001, 0.0001, 0.0001, 0.5] * 16)
    assert gaps.wait_s(1, 0.005) == 0.0001


def test_a_few_arrivals_say_nothing() -> None:
    assert gaps_of([0.001] * 7).wait_s(1, 1.0) == 0.0


# --- the batcher -------------------------------------------------------------------------------


class World:
    """Calls and steps in virtual time."""

    def __init__(self, fixed_s: float = 0.1, **options: int) -> None:
        self.options = BatchOptions(batch_wait_timeout_s="auto", **options)  # type: ignore[arg-type]
        self.batcher: Batcher[int] = Batcher(self.options, lambda _: True)
        self.fixed_s = fixed_s
        self.now = 10.0
        self.count = 0

    def add(self, count: int = 1, deadline: float = math.inf) -> None:
        for _ in range(count):
            self.batcher.add(self.count, self.now, deadline=deadline)
            self.count += 1

    def take(self) -> Batch[int] | None:
        return self.batcher.take(self.now)

    def wait(self) -> Batch[int]:
        """Let time pass until a batch leaves."""
        wakeup = self.batcher.next_wakeup()
        assert wakeup is not None
        self.now = wakeup
        batch = self.take()
        assert batch is not None
        return batch

    def run(self, batch: Batch[int] | None, *, returns: int = 0, after_s: float = 0.0) -> None:
        """Run a batch to its end; then ``returns`` callers come back one by one."""
        assert batch is not None
        self.now += self.fixed_s
        self.batcher.learn(batch.size, self.fixed_s)
        self.batcher.complete(batch, self.now)
        for _ in range(returns):
            self.now += after_s
            self.add()

    def teach(self, rounds: int = 20) -> None:
        """Let single calls come far apart, so that only the step is learnt."""
        for _ in range(rounds):
            self.now += 5.0
            self.add()
            self.run(self.take())


@pytest.mark.parity("S-24")
def test_a_lonely_call_leaves_at_once() -> None:
    world = World()
    world.teach()
    world.now += 5.0
    world.add()
    batch = world.take()
    assert batch is not None
    assert ([20], Reason.IDLE) == (batch.items, batch.reason)


def test_nothing_waits_before_something_is_known() -> None:
    world = World()
    world.add()
    assert world.batcher.next_wakeup() == world.now
    assert world.take() is not None


def test_while_the_executor_is_busy_the_batch_stays_open() -> None:
    world = World()
    world.teach()
    world.add()
    running = world.take()
    world.add(3)
    assert world.take() is None
    assert world.batcher.next_wakeup() is None
    world.run(running)
    batch = world.take()
    assert batch is not None
    assert len(batch.items) == 3


@pytest.mark.parity("S-24")
def test_callers_who_come_back_are_waited_for() -> None:
    """A closed loop of 4: all four are in each batch, though they come back one by one."""
    world = World(max_batch_size=16)
    world.teach()
    world.add(4)
    batch = world.take()
    sizes = []  # of each batch, and of what it left behind
    for _ in range(40):
        world.run(batch)
        batch = None
        for _ in range(4):
            world.now += 0.002
            world.add()
            batch = batch or world.take()
        batch = batch or world.wait()
        sizes.append((len(batch.items), len(world.batcher)))
    assert [(4, 0)] * 10 == sizes[-10:]


def test_callers_who_do_not_come_back_are_not_waited_for_long() -> None:
    world = World(max_batch_size=16)
    world.teach()
    world.add(4)
    batch = world.take()
    for _ in range(40):
        world.run(batch, returns=4, after_s=0.002)
        world.batcher.flush()
        batch = world.take()
    world.run(batch)
    world.now += 0.001
    world.add()
    wakeup = world.batcher.next_wakeup()
    assert wakeup is not None
    assert wakeup <= world.now + world.fixed_s / 2


@pytest.mark.parity("S-24")
def test_a_deadline_cuts_the_wait() -> None:
    """The batch leaves while it can still finish in time, after what steps took lately."""
    world = World(max_batch_size=16)
    world.teach()
    world.add(4)
    batch = world.take()
    for _ in range(40):
        world.run(batch, returns=4, after_s=0.01)
        world.batcher.flush()
        batch = world.take()
    world.run(batch)
    world.add()
    patient = world.batcher.next_wakeup()
    assert patient is not None
    assert patient > world.now + 0.02
    deadline = world.now + world.fixed_s + 0.01
    world.add(deadline=deadline)
    wakeup = world.batcher.next_wakeup()
    assert wakeup is not None
    assert world.now < wakeup < min(patient, deadline - world.fixed_s)
    world.now = wakeup
    left = world.take()
    assert left is not None
    assert left.reason is Reason.DEADLINE


def test_a_call_that_cannot_finish_in_time_is_refused_at_once() -> None:
    """All but the first, which is a trial: whether the step still takes as long."""
    world = World()
    world.teach()
    world.add(2, deadline=world.now + 0.05)
    assert [(21, Drop.HOPELESS)] == world.batcher.drops()
    batch = world.take()
    assert batch is not None
    assert batch.items == [20]


def test_trials_take_a_tenth_of_the_time() -> None:
    """Where steps stay too long, nine of ten that could run are refused."""
    world = World()
    world.teach()
    refused = 0
    for _ in range(200):
        world.add(deadline=world.now + 0.05)
        refused += len(world.batcher.drops())
        batch = world.take()
        if batch is None:
            world.now += world.fixed_s
        else:
            world.run(batch)
    assert 170 <= refused <= 185


def test_refusals_end_with_the_first_trial_that_is_quick() -> None:
    """Else a wrong estimate would keep away the calls that could find it out."""
    world = World()
    world.teach()
    world.fixed_s = 0.001
    world.add(2, deadline=world.now + 0.05)
    assert len(world.batcher.drops()) == 1
    world.run(world.take())
    world.add(5, deadline=world.now + 0.05)
    assert [] == world.batcher.drops()


def test_fixed_windows_refuse_nobody() -> None:
    batcher: Batcher[int] = Batcher(BatchOptions(), lambda _: True)
    for turn in range(20):
        batcher.add(turn, float(turn))
        batch = batcher.take(turn + 0.5)
        assert batch is not None
        batcher.learn(1, 0.1)
        batcher.complete(batch, turn + 0.6)
    batcher.add(99, 19.7, deadline=19.71)
    assert [] == batcher.drops()


def test_each_model_is_learnt_for_itself() -> None:
    batcher: Batcher[int] = Batcher(BatchOptions(batch_wait_timeout_s="auto"), lambda _: True)
    now = 0.0
    for turn in range(10):
        for key, step_s in (("slow", 1.0), ("fast", 0.01)):
            now += 5.0
            batcher.add(turn, now, key=key)
            batch = batcher.take(now)
            assert batch is not None
            batcher.learn(1, step_s, key)
            batcher.complete(batch, now + step_s)
    now += 2.0
    for item in (0, 1):  # The first is a trial.
        batcher.add(item, now, key="slow", deadline=now + 0.5)
        batcher.add(item, now, key="fast", deadline=now + 0.5)
    assert [(1, Drop.HOPELESS)] == batcher.drops()


def test_the_learnt_step_is_told() -> None:
    world = World()
    world.teach()
    stats = world.batcher.stats()
    assert stats.fixed_s + stats.per_item_s == pytest.approx(0.1)
