"""The state machine that decides when a batch leaves."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyserve.batching import Batch, Batcher, BatchOptions, Reason
from pyserve.errors import OptionError


def make(*, dead: set[str] | None = None, **options: float) -> Batcher[str]:
    gone = dead if dead is not None else set()
    return Batcher(BatchOptions(**options), lambda item: item not in gone)  # type: ignore[arg-type]


def test_a_full_batch_leaves_at_once() -> None:
    batcher = make(max_batch_size=2, batch_wait_timeout_s=1.0)
    batcher.add("a", 0.0)
    assert batcher.take(0.0) is None
    batcher.add("b", 0.1)
    assert Batch(["a", "b"], Reason.FULL) == batcher.take(0.1)


def test_a_small_batch_leaves_when_its_window_ends() -> None:
    batcher = make(max_batch_size=8, batch_wait_timeout_s=0.5)
    batcher.add("a", 1.0)
    assert batcher.next_wakeup() == 1.5
    assert batcher.take(1.4999) is None
    assert Batch(["a"], Reason.WINDOW) == batcher.take(1.5)
    assert batcher.next_wakeup() is None


def test_the_batch_stays_open_while_the_executor_is_busy() -> None:
    """Late binding: what arrives during a run leaves together, however long ago it came."""
    batcher = make(max_batch_size=4, batch_wait_timeout_s=0.0)
    batcher.add("a", 0.0)
    assert batcher.take(0.0) is not None
    for item in "bcdef":
        assert batcher.add(item, 0.1) is False
    assert batcher.next_wakeup() is None
    assert batcher.take(9.0) is None
    batcher.complete()
    assert Batch(list("bcde"), Reason.FULL) == batcher.take(9.0)


def test_a_second_executor_takes_a_second_batch() -> None:
    batcher = make(max_batch_size=1, batch_wait_timeout_s=0.0, max_concurrent_batches=2)
    for item in "abc":
        batcher.add(item, 0.0)
    assert Batch(["a"], Reason.FULL) == batcher.take(0.0)
    assert Batch(["b"], Reason.FULL) == batcher.take(0.0)
    assert batcher.take(0.0) is None


def test_dropped_callers_neither_fill_nor_open_a_batch() -> None:
    dead: set[str] = set()
    batcher = make(max_batch_size=2, batch_wait_timeout_s=1.0, dead=dead)
    batcher.add("a", 0.0)
    batcher.add("b", 0.9)
    dead.add("a")
    assert batcher.take(1.0) is None
    assert batcher.next_wakeup() == 1.9
    assert Batch(["b"], Reason.WINDOW) == batcher.take(1.9)


@pytest.mark.parametrize(
    "options",
    [
        {"max_batch_size": 0},
        {"max_batch_size": True},
        {"max_batch_size": 1.5},
        {"max_concurrent_batches": 0},
        {"batch_wait_timeout_s": -0.1},
        {"batch_wait_timeout_s": float("nan")},
        {"batch_wait_timeout_s": "auto"},
    ],
)
def test_limits_out_of_range_are_refused(options: dict[str, object]) -> None:
    (name,) = options
    with pytest.raises(OptionError, match=name):
        BatchOptions(**options)  # type: ignore[arg-type]


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("add"), st.floats(0, 5)), st.tuples(st.just("end"), st.just(0.0))
        ),
        max_size=60,
    ),
    st.integers(1, 5),
    st.integers(1, 3),
    st.floats(0, 2),
)
def test_every_item_leaves_once_in_order_and_within_the_limits(
    steps: list[tuple[str, float]], size: int, executors: int, wait_s: float
) -> None:
    batcher: Batcher[int] = Batcher(
        BatchOptions(
            max_batch_size=size, batch_wait_timeout_s=wait_s, max_concurrent_batches=executors
        ),
        lambda _: True,
    )
    now, added, left, running = 0.0, 0, [], 0
    for kind, delay in steps:
        now += delay
        if kind == "add":
            batcher.add(added, now)
            added += 1
        elif running:
            batcher.complete()
            running -= 1
        while (batch := batcher.take(now)) is not None:
            running += 1
            assert running <= executors
            assert 1 <= len(batch.items) <= size
            assert (len(batch.items) == size) == (batch.reason is Reason.FULL)
            left += batch.items
        wakeup = batcher.next_wakeup()
        assert wakeup is None or wakeup > now
    while len(batcher):
        while running:
            batcher.complete()
            running -= 1
        wakeup = batcher.next_wakeup()
        assert wakeup is not None
        now = max(now, wakeup)
        while (batch := batcher.take(now)) is not None:
            running += 1
            left += batch.items
    assert list(range(added)) == left
