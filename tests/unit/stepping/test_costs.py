"""What an instance tells routers of the costs of its requests."""

from __future__ import annotations

from typing import Any

import pytest

from pyserve import Done
from pyserve.stepping.departures import Departures
from pyserve.stepping.engine import Engine
from pyserve.stepping.options import ContinuousOptions
from pyserve.testing.driving import Arrival, _Call


class Costly:
    """A request is its cost and its number of steps; a state costs one more after each."""

    def __init__(self) -> None:
        self.failing: object = None

    def cost(self, what: Any) -> float:
        return float(what[0])

    def admit(self, request: tuple[int, int]) -> list[int]:
        return [*request]

    def step(self, states: list[list[int]]) -> list[Any]:
        for state in states:
            state[0] += 1
            state[1] -= 1
        return [None if state[1] else Done("done") for state in states]


class Free(Costly):
    """The same without costs."""

    cost = None  # type: ignore[assignment]


def call(number: int, request: tuple[int, int]) -> _Call:
    return _Call(number, Arrival(request=request), 0.0)


class Told:
    """An engine, and what it has told."""

    def __init__(self, model: object, **options: Any) -> None:
        self.reports: list[dict[str, float]] = []
        self.now = 0.0
        limits = ContinuousOptions(**options)
        self.engine = Engine(model, limits, lambda: self.now, lambda *_: None, lambda _: None)
        self.engine.tell(lambda **report: self.reports.append(report))
        self._model: Any = model

    def step(self) -> None:
        """Prepare, and make one step of a second if there is something to step."""
        chosen = self.engine.prepare()
        if not chosen:
            return
        steps = self.engine.stepping(chosen)
        states = next(steps)
        self.now += 1.0
        with pytest.raises(StopIteration):
            steps.send(self._model.step(states))

    def sums(self) -> tuple[float, float, float]:
        """Return running, waiting and calls of the last report."""
        last = self.reports[-1]
        return last["running"], last["waiting"], last["calls"]


def test_each_change_is_told_once_between_two_steps() -> None:
    told = Told(Costly(), max_running=1, budget=100)
    told.engine.prepare()
    told.engine.arrive(call(1, (10, 2)))
    told.engine.arrive(call(2, (20, 1)))
    told.step()
    assert told.sums() == (10, 20, 2)
    before = len(told.reports)
    told.step()
    assert told.sums() == (11, 20, 2)
    told.step()
    assert told.sums() == (20, 0, 1)
    assert len(told.reports) == before + 2
    told.step()
    told.step()
    assert told.sums() == (0, 0, 0)
    told.step()
    assert len(told.reports) == before + 3


def test_a_report_has_the_limits_and_when_a_new_request_would_be_admitted() -> None:
    told = Told(Costly(), max_running=1, budget=50)
    for number in range(3):
        told.engine.arrive(call(number, (10, 1 if number < 2 else 20)))
    told.step()
    first = told.reports[-1]
    assert (first["budget"], first["places"], first["wait_s"]) == (50, 1, 0.0)
    told.step()
    # One ended in a second; one runs and one waits before the next.
    assert told.reports[-1]["wait_s"] == pytest.approx(2.0, rel=0.1)
    for _ in range(10):
        told.step()
    assert told.reports[-1]["step_s"] == pytest.approx(1.0)


def test_a_class_without_costs_tells_nothing() -> None:
    told = Told(Free(), max_running=1)
    told.engine.arrive(call(1, (10, 2)))
    told.step()
    assert told.reports == []


@pytest.mark.parametrize(("reserve", "charge"), [("now", 12.0), ("bound", 30.0)])
def test_a_call_is_charged_its_bound_or_the_most_that_it_has_cost(
    reserve: Any, charge: float
) -> None:
    class Bounded(Costly):
        def bound(self, request: tuple[int, int]) -> float:
            return 3.0 * request[0]

    told = Told(Bounded(), reserve=reserve)
    caller = call(1, (10, 3))
    told.engine.arrive(caller)
    for _ in range(3):
        told.step()
    assert caller.charge == charge


class TestDepartures:
    def test_before_one_has_left_nothing_is_known(self) -> None:
        departures = Departures()
        departures.step(1.0)
        assert departures.wait_s(ahead=5, ahead_cost=50, places=0, free=0) == 0.0

    def test_what_is_short_of_places_or_budget_has_to_leave_first(self) -> None:
        departures = Departures()
        for _ in range(10):
            departures.leave(4.0)
            departures.step(0.5)
        wait_s = departures.wait_s
        assert departures.mean_cost == pytest.approx(4.0)
        assert wait_s(ahead=0, ahead_cost=0, places=1, free=4.0) == 0.0
        assert wait_s(ahead=3, ahead_cost=0, places=0, free=100) == pytest.approx(2.0, rel=0.1)
        assert wait_s(ahead=0, ahead_cost=20, places=9, free=0) == pytest.approx(3.0, rel=0.1)
