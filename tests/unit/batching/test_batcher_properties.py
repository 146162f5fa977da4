"""No item is lost, doubled or swapped, whatever arrives, leaves, fails or is set."""

import asyncio
import math
from dataclasses import dataclass, field
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pyserve.batching import Batch, Batcher, BatchOptions, Drop
from pyserve.batching.decorator import Batched, drain
from pyserve.errors import BackPressure, BatchError, RequestTimeout
from pyserve.request import CURRENT, Request, get_multiplexed_model_id
from tests.unit.batching.virtual import run_virtually


@dataclass(frozen=True)
class Arrival:
    """One call: when it comes after the one before, and what becomes of it."""

    gap_s: float
    model: str
    size: int
    fails: bool
    gives_up_s: float | None
    deadline_s: float | None


TIMES = st.sampled_from([0.0, 0.0, 0.001, 0.01, 0.05, 0.3, 1.0])

ARRIVALS = st.lists(
    st.builds(
        Arrival,
        gap_s=TIMES,
        model=st.sampled_from(["", "a", "b"]),
        size=st.integers(0, 6),
        fails=st.sampled_from([False, False, False, True]),
        gives_up_s=st.none() | TIMES,
        deadline_s=st.none() | TIMES,
    ),
    max_size=40,
)

OPTIONS = st.fixed_dictionaries(
    {
        "max_batch_size": st.integers(1, 5),
        "batch_wait_timeout_s": st.sampled_from([0.0, 0.02, 0.4, "auto"]),
        "max_concurrent_batches": st.integers(1, 3),
        "stride_s": st.sampled_from([0.0, 0.0, 0.07]),
        "allow_small_batch": st.booleans(),
        "isolate_failures": st.booleans(),
    }
)


@dataclass
class Model:
    """A batched method that notes what it was given, and breaks what the test forbids."""

    step_s: float
    raises: bool
    sized: bool
    options: BatchOptions
    ran: list[tuple[int, ...]] = field(default_factory=list)
    models: list[str] = field(default_factory=list)
    running: int = 0

    async def run(self, items: list[tuple[int, Arrival]]) -> list[Any]:
        indices = tuple(index for index, _ in items)
        self.ran.append(indices)
        self.models.append(get_multiplexed_model_id())
        self.running += 1
        try:
            assert self.running <= self.options.max_concurrent_batches
            assert {arrival.model for _, arrival in items} == {self.models[-1]}
            sizes = [arrival.size if self.sized else 1 for _, arrival in items]
            assert sum(sizes) <= self.options.max_batch_size
            await asyncio.sleep(self.step_s)
            if self.raises and any(arrival.fails for _, arrival in items):
                raise ValueError(indices)
            return [
                ValueError(index) if arrival.fails else ("result of", index)
                for index, arrival in items
            ]
        finally:
            self.running -= 1


async def play(model: Model, arrivals: list[Arrival]) -> list[Any]:
    size_fn = (lambda items: items[0][1].size) if model.sized else None
    options = model.options.updated(batch_size_fn=size_fn)
    bound = Batched[Any](Model.run, options).bind(model)
    loop = asyncio.get_running_loop()

    async def call(index: int, arrival: Arrival) -> Any:
        deadline = None if arrival.deadline_s is None else loop.time() + arrival.deadline_s
        CURRENT.set(Request(multiplexed_model_id=arrival.model, deadline=deadline))
        # Submitted in this very step, so that the order of arrival is that of the indices.
        answer = bound.__pyserve_submit__((index, arrival))  # type: ignore[attr-defined]
        if arrival.gives_up_s is not None:
            loop.call_later(arrival.gives_up_s, answer.cancel)
        return await answer

    calls = []
    for index, arrival in enumerate(arrivals):
        if arrival.gap_s:
            await asyncio.sleep(arrival.gap_s)
        calls.append(asyncio.create_task(call(index, arrival)))
    await asyncio.sleep(2.0)
    await drain(model)
    results = await asyncio.gather(*calls, return_exceptions=True)
    stats = bound.stats()  # type: ignore[attr-defined]
    assert stats is None or (stats.waiting, stats.running) == (0, 0)
    return results


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    arrivals=ARRIVALS,
    options=OPTIONS,
    step_s=st.sampled_from([0.0, 0.01, 0.2]),
    raises=st.booleans(),
    sized=st.booleans(),
)
def test_every_caller_gets_its_own_answer_once(
    arrivals: list[Arrival],
    options: dict[str, Any],
    step_s: float,
    raises: bool,
    sized: bool,
) -> None:
    model = Model(step_s, raises, sized, BatchOptions(**options))
    results = run_virtually(play(model, arrivals))
    assert len(arrivals) == len(results)
    ran = [index for indices in model.ran for index in indices]
    for index, (arrival, result) in enumerate(zip(arrivals, results, strict=True)):
        check_answer(index, arrival, result, model, has_run=index in ran)
    if not options["isolate_failures"]:
        assert len(set(ran)) == len(ran)
        check_order(model, arrivals)


def check_answer(index: int, arrival: Arrival, result: Any, model: Model, *, has_run: bool) -> None:
    """The answer is the item's own, or says truly why there is none."""
    match result:
        case ("result of", number):
            assert (number, arrival.fails) == (index, False)
        case ValueError(args=(indices,)) if not isinstance(result, BatchError):
            mine = indices == index or (isinstance(indices, tuple) and index in indices)
            assert mine
            assert arrival.fails or (model.raises and not model.options.isolate_failures)
        case RequestTimeout() | BackPressure():
            assert arrival.deadline_s is not None
            assert not has_run
        case asyncio.CancelledError():
            assert arrival.gives_up_s is not None
        case BatchError():
            assert model.sized
            assert arrival.size > model.options.max_batch_size
        case _:
            raise AssertionError(result)


def check_order(model: Model, arrivals: list[Arrival]) -> None:
    """Of one model, nobody overtakes."""
    for name in ("", "a", "b"):
        order = [
            i
            for indices, m in zip(model.ran, model.models, strict=True)
            if m == name
            for i in indices
        ]
        assert sorted(order) == order
    assert all(
        arrivals[indices[0]].model == m for indices, m in zip(model.ran, model.models, strict=True)
    )


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["add", "add", "add", "end", "wait", "flush", "die", "drain"]),
        TIMES,
        st.sampled_from(["", "a", "b"]),
        st.none() | TIMES,
        st.integers(0, 4),
    ),
    max_size=80,
)


@settings(max_examples=200, deadline=None)
@given(steps=STEPS, options=OPTIONS)
def test_the_state_machine_accounts_for_every_item_and_never_asks_in_vain(
    steps: list[tuple[str, float, str, float | None, int]], options: dict[str, Any]
) -> None:
    """Each item leaves in one batch or one drop, and a wake-up that came changes something."""
    dead: set[int] = set()
    batcher: Batcher[int] = Batcher(BatchOptions(**options), lambda item: item not in dead)
    now, added = 5.0, 0
    gone: list[int] = []
    running: list[Batch[int]] = []

    def take_all() -> None:
        while (batch := batcher.take(now)) is not None:
            assert 1 <= len(batch.items)
            assert batch.size <= options["max_batch_size"]
            running.append(batch)
            assert len(running) <= options["max_concurrent_batches"]
            gone.extend(batch.items)
        for item, why in batcher.drops():
            gone.append(item)
            assert why in Drop
        wakeup = batcher.next_wakeup()
        assert wakeup is None or wakeup > now

    for kind, delay_s, key, deadline_s, size in steps:
        now += delay_s
        if kind == "add":
            deadline = math.inf if deadline_s is None else now + deadline_s
            batcher.add(added, now, key=key, deadline=deadline, size=size)
            added += 1
        elif kind == "end" and running:
            batch = running.pop(0)
            batcher.learn(batch.size, delay_s, batch.key)
            batcher.complete(batch, now)
        elif kind == "flush":
            batcher.flush()
        elif kind == "drain":
            batcher.drain()
        elif kind == "die" and added:
            dead.add(added - 1)
        elif kind == "wait" and (wakeup := batcher.next_wakeup()) is not None:
            now = max(now, wakeup)
        take_all()
    batcher.drain()
    take_all()
    while running:
        batcher.complete(running.pop(), now)
        take_all()
    assert len(batcher) == 0
    assert len(set(gone)) == len(gone)
    assert set(range(added)) - set(gone) <= dead
    stats = batcher.stats()
    assert stats.items + stats.cancelled + sum(stats.dropped.values()) == added
