"""The scheduler of the simulated engine: nothing leaks, everybody ends, the order holds."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from pyserve.llm.results import BlocksRemoved, BlocksStored
from pyserve.llm.simulated.language import block_hashes
from pyserve.llm.simulated.scheduler import Rates, Running, Scheduler

SMALL = Rates(prefill_chunk=8, max_running=3, kv_tokens=64, block_size=4)


def _sequence(prompt: list[int], answer: int, priority: int = 0) -> Running:
    return Running(prompt, list(range(1000, 1000 + answer)), priority)


class _Watched:
    """A scheduler whose promises are looked at after everything that happens to it."""

    def __init__(self, rates: Rates = SMALL) -> None:
        self.scheduler = Scheduler(rates)
        self.now = 0.0
        self.all: list[Running] = []
        self.cached: set[bytes] = set()

    def add(self, sequence: Running) -> None:
        self.all.append(sequence)
        self.scheduler.add(sequence, self.now)
        self.check()

    def cancel(self, sequence: Running) -> None:
        made = sequence.made
        self.scheduler.cancel(sequence)
        assert sequence.is_over
        assert [] == sequence.blocks
        self.check()
        self.step()
        assert made == sequence.made

    def step(self) -> list[Running]:
        due = self.scheduler.next_at()
        if due is None:
            return []
        assert due > self.now
        self.now = due
        grown = self.scheduler.advance(self.now)
        self.check()
        return grown

    def finish(self) -> None:
        for _ in range(10_000):
            if self.scheduler.next_at() is None:
                return
            self.step()
        raise AssertionError("it never ends")

    def check(self) -> None:
        pool = self.scheduler.pool
        users = Counter(block for sequence in self.all for block in sequence.blocks)
        assert all(block.users == count for block, count in users.items())
        assert pool.count == pool.free + len(users)
        load = self.scheduler.load()
        assert load.running_requests <= self.scheduler.rates.max_running
        assert sum(not each.is_over for each in self.all) == (
            load.running_requests + load.waiting_requests
        )
        for event in pool.events:
            if isinstance(event, BlocksStored):
                assert not self.cached & set(event.hashes)
                self.cached |= set(event.hashes)
            elif isinstance(event, BlocksRemoved):
                assert set(event.hashes) <= self.cached
                self.cached -= set(event.hashes)
        pool.events = []
        assert self.cached == {
            each
            for event in pool.snapshot()
            if isinstance(event, BlocksStored)
            for each in event.hashes
        }


PROMPTS = st.lists(st.integers(0, 1), min_size=1, max_size=40)
ACTIONS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), PROMPTS, st.integers(1, 20), st.integers(-1, 1)),
        st.tuples(st.just("cancel"), st.integers(0, 30)),
        st.tuples(st.just("step"), st.integers(1, 5)),
    ),
    max_size=40,
)


@given(ACTIONS)
def test_blocks_never_leak_and_everybody_ends(actions):
    watched = _Watched()
    cancelled: set[int] = set()
    for action in actions:
        match action:
            case "add", prompt, answer, priority:
                watched.add(_sequence(prompt, answer, priority))
            case "cancel", number:
                alive = [each for each in watched.all if not each.is_over]
                if alive:
                    cancelled.add(id(alive[number % len(alive)]))
                    watched.cancel(alive[number % len(alive)])
            case "step", count:
                for _ in range(count):
                    watched.step()
    watched.finish()
    for each in watched.all:
        assert each.is_over
        assert id(each) in cancelled or each.made == len(each.answer)
    assert watched.scheduler.pool.free == watched.scheduler.pool.count


@given(st.lists(st.tuples(PROMPTS, st.integers(1, 20), st.integers(-1, 1)), max_size=12))
def test_who_comes_first_is_admitted_first_within_a_priority(requests):
    watched = _Watched()
    # One that fills the engine, so that all others wait.
    blocker = _sequence([9] * 40, 24)
    watched.add(blocker)
    others = [_sequence(*each) for each in requests]
    for each in others:
        watched.add(each)
    watched.finish()
    admitted = sorted(others, key=lambda each: (each.admitted, each.priority, each.number))
    assert admitted == sorted(others, key=Running.before)


def test_a_prompt_that_was_there_before_is_found_except_for_its_last_token():
    watched = _Watched()
    first, second = _sequence(list(range(16)), 4), _sequence(list(range(16)), 4)
    watched.add(first)
    watched.finish()
    watched.add(second)
    watched.finish()
    assert (0, 12) == (first.cached, second.cached)


def test_an_answer_is_found_when_it_comes_back_in_a_prompt():
    watched = _Watched()
    first = _sequence(list(range(6)), 12)
    watched.add(first)
    watched.finish()
    again = _sequence([*range(6), *first.answer, 1, 2], 1)
    watched.add(again)
    # All but the last token made, whose keys and values nobody has needed.
    assert 16 == again.cached


def test_the_block_that_was_used_longest_ago_makes_room():
    watched = _Watched()
    for start in (0, 100, 200):
        watched.add(_sequence(list(range(start, start + 20)), 4))
        watched.finish()
    oldest = block_hashes(list(range(20)), 4)
    newest = block_hashes(list(range(200, 220)), 4)
    assert set(newest) <= watched.cached
    watched.add(_sequence(list(range(300, 340)), 4))
    watched.finish()
    assert not set(oldest) & watched.cached
    assert set(newest[:3]) <= watched.cached


def test_a_step_takes_what_the_rates_say():
    rates = Rates(prefill_tokens_per_s=100.0, step_s=1.0, step_s_per_request=0.5)
    watched = _Watched(rates)
    sequence = _sequence([0] * 50, 3)
    watched.add(sequence)
    ends = []
    while watched.scheduler.next_at() is not None:
        watched.step()
        ends.append(watched.now)
    assert [1.5, 3.0, 4.5] == ends
    assert 1.5 == sequence.began


def test_steps_that_are_late_are_made_up_for():
    watched = _Watched()
    sequence = _sequence([1], 10)
    watched.add(sequence)
    grown = watched.scheduler.advance(1000.0)
    assert [sequence] == grown
    assert 10 == sequence.made
    assert sequence.is_over
