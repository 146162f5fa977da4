"""The next full batch is made while a step runs, and made again if a caller of it goes."""

import asyncio
import gc
import weakref
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import pyserve
from pyserve.batching import Batch, Batcher, BatchOptions, Drop, Reason, runs, streams
from pyserve.request import CURRENT, Request
from tests.unit.batching.test_batch_queue import virtual

_SIZE_MAX = 3


def make(*, gone: set[str] | None = None, **options: Any) -> Batcher[str]:
    left = set() if gone is None else gone
    given_options = {"max_batch_size": _SIZE_MAX, "batch_wait_timeout_s": 0.5, **options}
    return Batcher(BatchOptions(**given_options), lambda item: item not in left)


def busy(batcher: Batcher[str], items: str, **where: Any) -> Batch[str]:
    """Let a batch of one run, and these items wait."""
    batcher.add("0", 0.0)
    first = batcher.take(0.5)
    assert first is not None
    for item in items:
        batcher.add(item, 1.0, **where)
    return first


# --- the state machine ----------------------------------------------------------------------


def test_a_full_batch_is_made_once_and_leaves_as_it_is() -> None:
    batcher = make()
    first = busy(batcher, "abcd")
    assert batcher.can_prepare
    made = batcher.prepare(2.0)
    assert made is batcher.prepare(3.0)
    assert not batcher.can_prepare
    batcher.add("e", 3.0)
    assert batcher.take(3.0) is None
    batcher.complete(first, 4.0)
    assert made is batcher.take(4.0)
    assert made == Batch(["a", "b", "c"], Reason.FULL, "", 3, [1.0, 1.0, 1.0])
    assert 2 == len(batcher)


@pytest.mark.parametrize("items", ["", "a", "ab"])
def test_a_batch_that_may_still_grow_is_not_made(items: str) -> None:
    batcher = make()
    busy(batcher, items)
    assert not batcher.can_prepare
    assert batcher.prepare(2.0) is None


def test_who_goes_is_not_in_it_and_the_next_one_takes_the_place() -> None:
    gone: set[str] = set()
    batcher = make(gone=gone)
    first = busy(batcher, "abcd")
    made = batcher.prepare(2.0)
    gone.add("b")
    batcher.complete(first, 3.0)
    taken = batcher.take(3.0)
    assert made is not taken
    assert taken is not None
    assert ["a", "c", "d"] == taken.items
    assert 1 == batcher.stats().cancelled


def test_who_has_gone_or_is_late_before_is_let_go() -> None:
    gone = {"a"}
    batcher = make(gone=gone)
    busy(batcher, "ab")
    batcher.add("c", 1.0, deadline=1.5)
    for item in "def":
        batcher.add(item, 1.0)
    made = batcher.prepare(2.0)
    assert made is not None
    assert ["b", "d", "e"] == made.items
    assert [("c", Drop.EXPIRED)] == batcher.drops()


def test_who_becomes_late_is_refused() -> None:
    batcher = make()
    first = busy(batcher, "a")
    batcher.add("b", 1.0, deadline=3.0)
    batcher.add("c", 1.0)
    made = batcher.prepare(2.0)
    assert made is not None
    batcher.complete(first, 3.0)
    taken = batcher.take(3.0)
    assert taken is None or taken.items == ["a", "c"]
    assert [("b", Drop.EXPIRED)] == batcher.drops()


def test_new_limits_make_it_anew() -> None:
    batcher = make()
    first = busy(batcher, "abcd")
    made = batcher.prepare(2.0)
    batcher.configure(batcher.options.updated(max_batch_size=2))
    assert made is not None
    batcher.complete(first, 3.0)
    taken = batcher.take(3.0)
    assert taken is not None
    assert ["a", "b"] == taken.items


def test_of_several_models_the_oldest_full_batch_is_made() -> None:
    batcher = make()
    first = busy(batcher, "ab", key="x")
    for item in "ABC":
        batcher.add(item, 1.5, key="y")
    batcher.add("c", 2.0, key="x")
    made = batcher.prepare(2.0)
    assert made is not None
    assert ("x", ["a", "b", "c"]) == (made.key, made.items)
    batcher.complete(first, 3.0)
    assert made is batcher.take(3.0)
    assert batcher.can_prepare


_EVENTS = st.lists(
    st.tuples(
        st.sampled_from(["add"] * 6 + ["end", "end", "wait", "flush", "configure"]),
        st.sampled_from([0.0, 0.0, 0.01, 0.3]),
        st.sampled_from(["", "a"]),
        st.integers(0, 3),
        st.booleans(),
    ),
    max_size=80,
)


@given(_EVENTS, st.sampled_from([0.0, 0.2, "auto"]), st.integers(1, 2), st.booleans())
def test_batches_are_the_same_with_and_without(
    events: list[tuple[str, float, str, int, bool]], wait_s: Any, executors: int, small: bool
) -> None:
    options = BatchOptions(
        max_batch_size=4,
        batch_wait_timeout_s=wait_s,
        max_concurrent_batches=executors,
        allow_small_batch=small,
    )
    pair = [Batcher[int](options, lambda _: True) for _ in range(2)]
    running: list[list[Batch[int]]] = []
    now = 5.0
    for number, (event, pause_s, key, size, prepares) in enumerate(events):
        now += pause_s
        done = running.pop(0) if event == "end" and running else None
        for index, batcher in enumerate(pair):
            if event == "add":
                batcher.add(number, now, key=key, size=size)
            elif event == "configure":
                batcher.configure(batcher.options.updated(max_batch_size=4 + size))
            elif event == "flush":
                batcher.flush()
            elif done is not None:
                batcher.learn(done[index].size, 0.1, key)
                batcher.complete(done[index], now)
            if index and prepares:
                batcher.prepare(now)
        while (expected := pair[0].take(now)) is not None:
            taken = pair[1].take(now)
            assert expected == taken
            running.append([expected, taken])
        assert pair[1].take(now) is None
        assert pair[0].next_wakeup() == pair[1].next_wakeup()
        assert pair[0].stats() == pair[1].stats()


# --- its driver -----------------------------------------------------------------------------


class Steps:
    """Notes when steps begin and end, and when their arguments are put together."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.events: list[tuple[str, list[Any]]] = []
        columns_of = runs.columns_of

        def noted(calls: Any) -> Any:
            columns = columns_of(calls)
            self.events.append(("made", list(columns[0])))
            return columns

        monkeypatch.setattr(runs, "columns_of", noted)
        monkeypatch.setattr(streams, "columns_of", noted)

    @pyserve.batch(max_batch_size=2, batch_wait_timeout_s=0)
    async def run(self, items: list[int]) -> list[int]:
        self.events.append(("begin", list(items)))
        await asyncio.sleep(1)
        self.events.append(("end", list(items)))
        return items

    @pyserve.batch(max_batch_size=2, batch_wait_timeout_s=0)
    async def stream(self, items: list[int]) -> Any:
        self.events.append(("begin", list(items)))
        await asyncio.sleep(1)
        yield items
        self.events.append(("end", list(items)))

    async def read(self, item: int) -> int:
        results: list[int] = [result async for result in self.stream(item)]
        return results.pop()


_SATURATED = [
    ("made", [0, 1]),
    ("begin", [0, 1]),
    ("made", [2, 3]),
    ("end", [0, 1]),
    ("begin", [2, 3]),
    ("made", [4, 5]),
    ("end", [2, 3]),
    ("begin", [4, 5]),
    ("end", [4, 5]),
]


@pytest.mark.parametrize("name", ["run", "read"])
def test_arguments_of_the_next_step_are_put_together_while_one_runs(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    @virtual
    async def play() -> None:
        steps = Steps(monkeypatch)
        call = getattr(steps, name)
        assert list(range(6)) == await asyncio.gather(*(call(item) for item in range(6)))
        assert _SATURATED == steps.events

    play()


def test_arguments_are_put_together_when_the_last_call_of_the_next_batch_comes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    @virtual
    async def play() -> None:
        steps = Steps(monkeypatch)
        calls = [asyncio.create_task(steps.run(item)) for item in range(3)]
        await asyncio.sleep(0.5)
        calls.append(asyncio.create_task(steps.run(3)))
        assert list(range(4)) == await asyncio.gather(*calls)
        assert [*_SATURATED[:5], ("end", [2, 3])] == steps.events

    play()


def test_a_call_that_leaves_the_next_batch_takes_no_part_in_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    @virtual
    async def play() -> None:
        steps = Steps(monkeypatch)
        calls = [asyncio.create_task(steps.run(item)) for item in range(5)]
        await asyncio.sleep(0.5)
        calls[2].cancel()
        done = await asyncio.gather(*calls, return_exceptions=True)
        assert isinstance(done[2], asyncio.CancelledError)
        assert [0, 1, 3, 4] == [each for each in done if isinstance(each, int)]
        began = [items for event, items in steps.events if event == "begin"]
        assert [[0, 1], [3, 4]] == began

    play()


class Large:
    """An argument that nobody may keep."""


def test_nothing_is_kept_of_a_batch_whose_callers_have_gone() -> None:
    @pyserve.batch(max_batch_size=2, batch_wait_timeout_s=0)
    async def run(items: list[Large]) -> list[int]:
        await asyncio.sleep(1)
        return [0 for _ in items]

    @virtual
    async def play() -> None:
        items = [Large() for _ in range(4)]
        kept = [weakref.ref(item) for item in items]
        # Futures: a task that was cancelled keeps its frames.
        calls = [run.__pyserve_submit__(items.pop(0)) for _ in range(4)]
        await asyncio.sleep(0.5)
        assert [call.cancel() for call in calls[2:]]
        assert [0, 0] == await asyncio.gather(*calls[:2])
        calls.clear()
        await run.drain()
        gc.collect()
        assert [None] * 4 == [each() for each in kept]

    play()


def test_a_step_sees_the_request_of_its_own_batch() -> None:
    seen: list[tuple[str, list[str]]] = []

    @pyserve.batch(max_batch_size=2, batch_wait_timeout_s=0)
    async def model(items: list[str]) -> list[str]:
        await asyncio.sleep(1)
        seen.append((pyserve.get_multiplexed_model_id(), items))
        return items

    async def call(item: str) -> str:
        CURRENT.set(Request(multiplexed_model_id=item[0]))
        return await model(item)

    @virtual
    async def play() -> None:
        items = ["a0", "a1", "b0", "b1", "a2", "b2", "a3", "b3"]
        tasks = [asyncio.create_task(call(item)) for item in items]
        assert items == await asyncio.gather(*tasks)

    play()
    expected = [("a", ["a0", "a1"]), ("a", ["a2", "a3"]), ("b", ["b0", "b1"]), ("b", ["b2", "b3"])]
    assert expected == sorted(seen)
