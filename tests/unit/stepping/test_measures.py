"""Which times count as those of values."""

from __future__ import annotations

import pytest

from pyserve.stepping.engine import Engine
from pyserve.stepping.entries import Entry
from pyserve.stepping.options import ContinuousOptions
from pyserve.stepping.scheduler import Scheduler
from pyserve.testing.driving import Arrival, _Call
from tests.unit.stepping.models import Counting, Work


def test_how_long_a_slow_reader_does_not_read_is_no_time_of_a_value() -> None:
    now, model = 0.0, Counting()
    options = ContinuousOptions(slack=2, park_s=None)
    engine = Engine(model, options, lambda: now, lambda *_: None, lambda _: None)
    call = _Call(1, Arrival(request=Work("a", 5)), now)
    engine.arrive(call)

    def step() -> int:
        nonlocal now
        chosen = engine.prepare()
        if chosen:
            steps = engine.stepping(chosen)
            states = next(steps)
            now += 1.0
            with pytest.raises(StopIteration):
                steps.send(model.step(states))
        return len(chosen)

    assert [1, 1, 1, 0] == [step() for _ in range(4)]  # Three are not read: it is parked.
    now += 100.0
    call.read = call.sent
    engine.read_on(call)
    assert [1, 1] == [step() for _ in range(2)]

    times = engine.measures.next_values
    assert (4, 4.0) == (sum(times.counts), times.sum)


def test_the_load_is_told_while_requests_come_and_go(monkeypatch: pytest.MonkeyPatch) -> None:
    scheduler: Scheduler[str] = Scheduler(ContinuousOptions())

    def admit(key: int) -> None:
        assert scheduler.add(Entry("call", key=key)) is None
        entry = scheduler.admitting(0.0)
        assert entry is not None
        scheduler.admitted(entry, "state", 1)

    def admit_meanwhile(_known: object) -> float:  # As the thread that steps may at any time.
        if keys:
            admit(keys.pop())
        return 0.0

    admit(1)
    admit(2)
    keys = [3]
    monkeypatch.setattr(scheduler, "_expected_s", admit_meanwhile)
    assert scheduler.load().running == 3
