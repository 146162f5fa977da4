"""The state machine that decides when a batch leaves."""

import math
from typing import Any

import pytest

from pyserve.batching import Batch, Batcher, BatchOptions, Drop, Reason
from pyserve.errors import OptionError


def make(*, dead: set[str] | None = None, **options: Any) -> Batcher[str]:
    gone = dead if dead is not None else set()
    return Batcher(BatchOptions(**options), lambda item: item not in gone)


def left(batch: Batch[str] | None) -> tuple[str, Reason] | None:
    return None if batch is None else ("".join(batch.items), batch.reason)


def add_all(batcher: Batcher[str], items: str, now: float, **where: Any) -> None:
    for item in items:
        batcher.add(item, now, **where)


@pytest.mark.parity("S-17")
def test_a_full_batch_leaves_at_once() -> None:
    batcher = make(max_batch_size=2, batch_wait_timeout_s=1.0)
    batcher.add("a", 0.0)
    assert batcher.take(0.0) is None
    batcher.add("b", 0.1)
    assert ("ab", Reason.FULL) == left(batcher.take(0.1))


@pytest.mark.parity("S-17")
def test_a_small_batch_leaves_when_the_window_of_its_first_item_ends() -> None:
    batcher = make(max_batch_size=8, batch_wait_timeout_s=0.5)
    batcher.add("a", 1.0)
    batcher.add("b", 1.4)
    assert batcher.next_wakeup() == 1.5
    assert batcher.take(1.4999) is None
    assert ("ab", Reason.WINDOW) == left(batcher.take(1.5))
    assert batcher.next_wakeup() is None


def test_the_batch_stays_open_while_the_executor_is_busy() -> None:
    """Late binding: what arrives during a run leaves together, however long ago it came."""
    batcher = make(max_batch_size=4, batch_wait_timeout_s=0.0)
    batcher.add("a", 0.0)
    first = batcher.take(0.0)
    assert first is not None
    for item in "bcdef":
        assert batcher.add(item, 0.1) is False
    assert batcher.next_wakeup() is None
    assert batcher.take(9.0) is None
    batcher.complete(first, 9.0)
    assert ("bcde", Reason.FULL) == left(batcher.take(9.0))


def test_a_second_executor_takes_a_second_batch() -> None:
    batcher = make(max_batch_size=1, batch_wait_timeout_s=0.0, max_concurrent_batches=2)
    add_all(batcher, "abc", 0.0)
    assert ("a", Reason.FULL) == left(batcher.take(0.0))
    assert ("b", Reason.FULL) == left(batcher.take(0.0))
    assert batcher.take(0.0) is None


def test_callers_who_have_gone_neither_fill_nor_open_a_batch() -> None:
    dead: set[str] = set()
    batcher = make(max_batch_size=2, batch_wait_timeout_s=1.0, dead=dead)
    batcher.add("a", 0.0)
    batcher.add("b", 0.9)
    dead.add("a")
    assert batcher.take(1.0) is None
    assert batcher.next_wakeup() == 1.9
    assert ("b", Reason.WINDOW) == left(batcher.take(1.9))
    assert batcher.stats().cancelled == 1


def test_a_storm_of_cancels_during_a_run_does_not_pile_up() -> None:
    """Items of callers who have gone are let go of before the run ends."""
    dead: set[str] = set()
    batcher = make(max_batch_size=1, dead=dead)
    batcher.add("runs", 0.0)
    batcher.take(0.0)
    most = 0
    for number in range(10_000):
        batcher.add(f"item {number}", 1.0)
        dead.add(f"item {number}")
        most = max(most, len(batcher))
    assert most <= 256


def test_an_expired_caller_is_dropped_before_the_run_and_told() -> None:
    batcher = make(max_batch_size=4, batch_wait_timeout_s=0.0)
    batcher.add("runs", 0.0)
    running = batcher.take(0.0)
    assert running is not None
    batcher.add("a", 0.1, deadline=0.5)
    batcher.add("b", 0.1, deadline=5.0)
    batcher.complete(running, 1.0)
    assert ("b", Reason.WINDOW) == left(batcher.take(1.0))
    assert [("a", Drop.EXPIRED)] == batcher.drops()
    assert [] == batcher.drops()


def test_a_batch_never_mixes_keys() -> None:
    batcher = make(max_batch_size=3, batch_wait_timeout_s=1.0)
    for item, key in (("a", "m1"), ("b", "m2"), ("c", "m1"), ("d", "m1"), ("e", "m2")):
        batcher.add(item, 0.0, key=key)
    first = batcher.take(0.0)
    assert first is not None
    assert ("acd", Reason.FULL, "m1") == (*left(first), first.key)  # type: ignore[misc]
    batcher.complete(first, 1.0)
    assert ("be", Reason.WINDOW) == left(batcher.take(1.0))


def test_a_single_caller_is_not_starved_by_a_model_that_is_always_full() -> None:
    """Age counts, and up to twice for a full batch."""
    batcher = make(max_batch_size=4, batch_wait_timeout_s=0.0)
    batcher.add("x", 0.0, key="rare")
    now, order = 0.0, []
    for _ in range(6):
        add_all(batcher, "abcd", now, key="hot")
        now += 1.0
        batch = batcher.take(now)
        assert batch is not None
        order.append(batch.key)
        batcher.complete(batch, now)
    assert "rare" in order[:3]


def test_lanes_of_equal_fill_take_turns() -> None:
    batcher = make(max_batch_size=2, batch_wait_timeout_s=0.0)
    order = []
    for step in range(40):
        for key in ("m1", "m2", "m3"):
            batcher.add(f"{step}", float(step), key=key)
        batch = batcher.take(float(step) + 0.5)
        assert batch is not None
        order.append(batch.key)
        batcher.complete(batch, step + 0.9)
    counts = [order.count(key) for key in ("m1", "m2", "m3")]
    assert max(counts) - min(counts) <= 1


# --- sizes -------------------------------------------------------------------------------


def test_sizes_are_summed_and_order_is_kept() -> None:
    """What does not fit stays at the head; nothing smaller overtakes it."""
    batcher = make(max_batch_size=10, batch_wait_timeout_s=0.0)
    for item, size in (("a", 6), ("b", 5), ("c", 1)):
        batcher.add(item, 0.0, size=size)
    first = batcher.take(0.0)
    assert first is not None
    assert ("a", Reason.FULL, 6) == (*left(first), first.size)  # type: ignore[misc]
    batcher.complete(first, 1.0)
    assert ("bc", Reason.WINDOW) == left(batcher.take(1.0))


def test_an_oversized_item_fails_alone() -> None:
    batcher = make(max_batch_size=10, batch_wait_timeout_s=0.0)
    batcher.add("a", 0.0, size=4)
    assert batcher.add("b", 0.0, size=11) is True
    assert [("b", Drop.OVERSIZED)] == batcher.drops()
    assert ("a", Reason.WINDOW) == left(batcher.take(0.0))


def test_an_item_that_became_too_large_fails_alone() -> None:
    batcher = make(max_batch_size=10, batch_wait_timeout_s=1.0)
    batcher.add("a", 0.0, size=8)
    batcher.add("b", 0.0, size=1)
    batcher.configure(BatchOptions(max_batch_size=4, batch_wait_timeout_s=1.0))
    assert batcher.take(0.5) is None
    assert [("a", Drop.OVERSIZED)] == batcher.drops()
    assert ("b", Reason.WINDOW) == left(batcher.take(1.0))


# --- strides, small batches, flush, drain ------------------------------------------------------


@pytest.mark.parity("S-22")
def test_with_a_stride_even_a_full_batch_waits_for_the_tick() -> None:
    batcher = make(max_batch_size=2, batch_wait_timeout_s=0.0, stride_s=0.5)
    add_all(batcher, "abc", 10.1)
    assert batcher.take(10.1) is None
    assert batcher.next_wakeup() == 10.5
    assert ("ab", Reason.FULL) == left(batcher.take(10.5))


@pytest.mark.parity("S-22")
def test_a_stride_adds_no_more_than_itself_to_the_window() -> None:
    batcher = make(max_batch_size=8, batch_wait_timeout_s=0.7, stride_s=0.5)
    batcher.add("a", 10.1)
    assert batcher.next_wakeup() == 11.0  # the window ends at 10.8
    assert batcher.take(10.5) is None
    assert batcher.take(10.8) is None
    assert ("a", Reason.STRIDE) == left(batcher.take(11.0))


@pytest.mark.parity("S-22")
def test_an_executor_that_ends_between_ticks_waits_for_the_next() -> None:
    batcher = make(max_batch_size=1, batch_wait_timeout_s=0.0, stride_s=1.0)
    add_all(batcher, "ab", 0.5)
    first = batcher.take(1.0)
    assert first is not None
    batcher.complete(first, 3.2)
    assert batcher.take(3.2) is None
    assert batcher.next_wakeup() == 4.0
    assert ("b", Reason.FULL) == left(batcher.take(4.0))


@pytest.mark.parity("S-23")
def test_without_small_batches_only_full_ones_leave() -> None:
    batcher = make(max_batch_size=2, batch_wait_timeout_s=0.1, allow_small_batch=False)
    batcher.add("a", 0.0)
    assert batcher.next_wakeup() is None
    assert batcher.take(99.0) is None
    batcher.add("b", 100.0)
    assert ("ab", Reason.FULL) == left(batcher.take(100.0))


@pytest.mark.parity("S-23")
def test_deadlines_apply_while_a_small_batch_is_held() -> None:
    batcher = make(max_batch_size=2, allow_small_batch=False)
    batcher.add("a", 0.0, deadline=3.0)
    assert batcher.next_wakeup() == 3.0
    assert batcher.take(3.0) is None
    assert [("a", Drop.EXPIRED)] == batcher.drops()
    assert batcher.next_wakeup() is None


@pytest.mark.parity("S-23")
@pytest.mark.parametrize("allow_small_batch", [True, False])
def test_a_flush_lets_go_what_waits_and_nothing_later(*, allow_small_batch: bool) -> None:
    batcher = make(max_batch_size=2, batch_wait_timeout_s=9.0, allow_small_batch=allow_small_batch)
    add_all(batcher, "abc", 0.0)
    batcher.flush()
    first = batcher.take(0.0)
    assert first is not None
    assert ("ab", Reason.FULL) == left(first)
    batcher.complete(first, 1.0)
    assert ("c", Reason.FLUSH) == left(batcher.take(1.0))
    batcher.add("d", 1.0)
    assert batcher.take(1.0) is None


@pytest.mark.parity("S-23")
@pytest.mark.parametrize("allow_small_batch", [True, False])
def test_a_drain_lets_everything_go_from_then_on(*, allow_small_batch: bool) -> None:
    """Held batches are flushed when the replica stops, not failed."""
    batcher = make(max_batch_size=8, stride_s=5.0, allow_small_batch=allow_small_batch)
    batcher.add("a", 1.0)
    batcher.drain()
    first = batcher.take(1.0)
    assert first is not None
    assert ("a", Reason.DRAIN) == left(first)
    batcher.complete(first, 2.0)
    batcher.add("b", 2.0)
    assert ("b", Reason.DRAIN) == left(batcher.take(2.0))


def test_a_flush_counts_only_callers_who_still_wait() -> None:
    dead: set[str] = set()
    batcher = make(max_batch_size=8, batch_wait_timeout_s=9.0, dead=dead)
    add_all(batcher, "ab", 0.0)
    batcher.flush()
    dead.add("a")
    assert ("b", Reason.FLUSH) == left(batcher.take(0.0))


# --- limits ------------------------------------------------------------------------------------


def test_limits_set_at_run_time_apply_to_what_waits() -> None:
    batcher = make(max_batch_size=8, batch_wait_timeout_s=9.0)
    add_all(batcher, "abc", 0.0)
    assert batcher.take(0.0) is None
    batcher.configure(BatchOptions(max_batch_size=2, max_concurrent_batches=2))
    assert ("ab", Reason.FULL) == left(batcher.take(0.0))
    assert ("c", Reason.WINDOW) == left(batcher.take(0.01))


def test_stats_count_what_happened_and_why() -> None:
    dead = {"x"}
    batcher = make(max_batch_size=2, batch_wait_timeout_s=0.0, dead=dead)
    add_all(batcher, "abxc", 0.0)
    batcher.add("y", 0.0, size=3)
    for _ in range(2):
        batch = batcher.take(0.0)
        assert batch is not None
        batcher.complete(batch, 0.0)
    batcher.add("d", 0.0)
    stats = batcher.stats()
    assert (2, 3, 1, 1, 0) == (
        stats.batches,
        stats.items,
        stats.cancelled,
        stats.waiting,
        stats.running,
    )
    assert {Reason.FULL: 1, Reason.WINDOW: 1} == stats.reasons
    assert {Drop.OVERSIZED: 1} == stats.dropped
    assert stats.mean_batch_size == 1.5


@pytest.mark.parametrize(
    "options",
    [
        {"max_batch_size": 0},
        {"max_batch_size": True},
        {"max_batch_size": 1.5},
        {"max_concurrent_batches": 0},
        {"batch_wait_timeout_s": -0.1},
        {"batch_wait_timeout_s": float("nan")},
        {"batch_wait_timeout_s": math.inf},
        {"batch_wait_timeout_s": "soon"},
        {"stride_s": -1},
        {"stride_s": "auto"},
        {"allow_small_batch": 1},
        {"isolate_failures": None},
        {"batch_size_fn": 3},
    ],
)
def test_limits_out_of_range_are_refused(options: dict[str, Any]) -> None:
    (name,) = options
    with pytest.raises(OptionError, match=name):
        BatchOptions(**options)
