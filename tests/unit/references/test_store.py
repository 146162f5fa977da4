"""The books: bounded, and each value freed exactly once."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from pyserve.references.store import Limits, Store

LIMITS = Limits(held_bytes_max=100, unused_s=60.0)
KEYS = [f"k{index}" for index in range(6)]
HOLDERS = [0, 1, 2]


@pytest.fixture
def store():
    return Store(LIMITS)


def test_a_value_that_nobody_uses_is_freed_after_the_limit(store):
    assert store.add("a", 10, now=5.0)
    assert [] == store.expire(64.9)
    assert ["a"] == store.expire(65.0)
    assert (0, 0) == (len(store), store.held_bytes)


def test_a_value_that_somebody_has_does_not_age(store):
    store.add("a", 10, now=0.0)
    assert store.take("a", 1, now=30.0)
    assert None is store.next_expiry()
    assert [] == store.expire(1000.0)
    assert [] == store.drop("a", 1, now=1000.0)
    assert 1060.0 == store.next_expiry()
    assert ["a"] == store.expire(1060.0)


def test_a_value_may_be_taken_again_while_it_is_open(store):
    store.add("a", 10, now=0.0)
    for moment in (50.0, 100.0, 150.0):
        assert store.take("a", 1, moment)
        assert [] == store.drop("a", 1, moment)
    assert "a" in store


def test_a_forgotten_value_is_freed_at_once_or_with_its_last_holder(store):
    store.add("a", 10, now=0.0)
    store.add("b", 10, now=0.0)
    store.take("b", 1, now=1.0)
    store.take("b", 2, now=1.0)
    assert ["a"] == store.forget("a")
    assert [] == store.forget("b")
    assert not store.take("b", 3, now=2.0)
    assert [] == store.drop("b", 1, now=3.0)
    assert ["b"] == store.drop("b", 2, now=4.0)
    assert [] == store.forget("b")


def test_what_a_holder_took_several_times_counts_as_often(store):
    store.add("a", 10, now=0.0)
    store.take("a", 1, now=0.0)
    store.take("a", 1, now=0.0)
    store.forget("a")
    assert [] == store.drop("a", 1, now=1.0)
    assert ["a"] == store.drop("a", 1, now=1.0)


def test_a_holder_that_goes_gives_back_everything(store):
    for key in ("a", "b", "c"):
        store.add(key, 10, now=0.0)
        store.take(key, 7, now=0.0)
    store.take("c", 8, now=0.0)
    for key in ("b", "c"):
        store.forget(key)
    assert ["b"] == store.disconnect(7, now=5.0)
    assert {"a", "c"} == {key for key in "abc" if key in store}
    assert 65.0 == store.next_expiry()  # of `a`, which is open
    assert [] == store.disconnect(7, now=6.0)


def test_what_does_not_fit_changes_nothing(store):
    assert store.add("a", 60, now=0.0)
    assert not store.add("b", 41, now=0.0)
    assert (1, 60) == (len(store), store.held_bytes)
    assert store.add("b", 40, now=0.0)


def test_a_drop_by_somebody_who_never_took_changes_nothing(store):
    store.add("a", 10, now=0.0)
    store.take("a", 1, now=0.0)
    store.forget("a")
    assert [] == store.drop("a", 2, now=1.0)
    assert [] == store.drop("unknown", 1, now=1.0)
    assert "a" in store


class Books(RuleBasedStateMachine):
    """Any sequence of calls: what is freed was held, and is reported once."""

    def __init__(self):
        super().__init__()
        self.store = Store(LIMITS)
        self.now = 0.0
        self.made = 0
        self.sizes: dict[str, int] = {}
        self.takes: dict[tuple[str, int], int] = {}

    def freed(self, keys):
        for key in keys:
            assert key in self.sizes, "freed twice, or never held"
            del self.sizes[key]
            self.takes = {pair: n for pair, n in self.takes.items() if pair[0] != key}
            assert not self.store.take(key, 0, self.now)

    def key(self, index):
        return sorted(self.sizes)[index % len(self.sizes)] if self.sizes else "none"

    @rule(size=st.integers(0, 60))
    def add(self, size):
        self.made += 1
        key = f"k{self.made}"
        fits = sum(self.sizes.values()) + size <= LIMITS.held_bytes_max
        assert fits == self.store.add(key, size, self.now)
        if fits:
            self.sizes[key] = size

    @rule(index=st.integers(0, 9), holder=st.sampled_from(HOLDERS))
    def take(self, index, holder):
        key = self.key(index)
        if self.store.take(key, holder, self.now):
            assert key in self.sizes
            self.takes[key, holder] = self.takes.get((key, holder), 0) + 1

    @rule(index=st.integers(0, 9), holder=st.sampled_from(HOLDERS))
    def drop(self, index, holder):
        key = self.key(index)
        freed = self.store.drop(key, holder, self.now)
        if (key, holder) in self.takes:
            self.takes[key, holder] -= 1
            if not self.takes[key, holder]:
                del self.takes[key, holder]
        self.freed(freed)

    @rule(holder=st.sampled_from(HOLDERS))
    def disconnect(self, holder):
        self.takes = {pair: n for pair, n in self.takes.items() if pair[1] != holder}
        self.freed(self.store.disconnect(holder, self.now))

    @rule(index=st.integers(0, 9))
    def forget(self, index):
        self.freed(self.store.forget(self.key(index)))

    @rule(seconds=st.floats(0.0, 80.0))
    def pass_time(self, seconds):
        self.now += seconds
        self.freed(self.store.expire(self.now))
        due = self.store.next_expiry()
        assert due is None or due > self.now

    @invariant()
    def the_sum_is_that_of_the_values_and_within_the_limit(self):
        assert sum(self.sizes.values()) == self.store.held_bytes <= LIMITS.held_bytes_max
        assert len(self.sizes) == len(self.store)

    @invariant()
    def what_somebody_has_is_there(self):
        assert {key for key, _ in self.takes} <= set(self.sizes)

    @invariant()
    def nothing_stays_without_an_end(self):
        """Nobody has it: then it ages."""
        taken = {key for key, _ in self.takes}
        assert set(self.sizes) - taken == set(self.store._unused)

    @precondition(lambda self: self.sizes)
    @rule()
    def clear(self):
        self.freed(self.store.clear())
        assert {} == self.store._keys_by_holder
        assert 0 == self.store.held_bytes


TestBooks = Books.TestCase
TestBooks.settings = settings(max_examples=60, stateful_step_count=40)
