"""Thousands of requests that wait: their order, and what keeping it costs."""

from __future__ import annotations

from typing import Any

import pytest

from pyserve.stepping import waiting as module
from pyserve.stepping.entries import Entry
from pyserve.stepping.options import ContinuousOptions
from pyserve.stepping.waiting import Waiting
from pyserve.testing.driving import Arrival, Driven, drive
from tests.unit.stepping.models import Counting, Work


def entries(count: int) -> list[Entry[str]]:
    found = [Entry(f"call {number}") for number in range(count)]
    for number, entry in enumerate(found):
        entry.arrival = number
    return found


def taken(waiting: Waiting[str]) -> Entry[str]:
    entry = waiting.first(lambda _: False)
    assert entry is not None
    assert waiting.take() is entry
    return entry


def begun(driven: Driven) -> list[int]:
    """Return requests in the order of their first steps."""
    return list(dict.fromkeys(number for step in driven.steps for number in step.requests))


def run(requests: list[Any], **options: Any) -> Driven:
    model = Counting()
    found = drive(model, requests, step_s=1.0, options=ContinuousOptions(**options))
    assert not model.held
    return found


class TestPlaces:
    @pytest.mark.parametrize("back", [(0, 1, 2), (2, 1, 0), (1, 0, 2), (0, 2, 1)])
    def test_requests_that_come_back_keep_their_places(self, back: tuple[int, ...]) -> None:
        waiting: Waiting[str] = Waiting()
        for entry in entries(6):
            waiting.add(entry)
        held = [taken(waiting) for _ in range(3)]
        for number in back:
            waiting.add(held[number])
        assert [taken(waiting).arrival for _ in range(6)] == list(range(6))

    def test_a_request_that_is_put_back_is_passed_only_by_those_that_come_before_it(self) -> None:
        waiting: Waiting[str] = Waiting()
        first, second, third = entries(3)
        for entry in (second, third):
            waiting.add(entry)
        assert waiting.first(lambda _: False) is second
        waiting.put_back()
        waiting.add(first)
        assert [taken(waiting) for _ in range(3)] == [first, second, third]

    def test_coming_back_again_and_again_takes_no_memory(self) -> None:
        waiting: Waiting[str] = Waiting()
        for entry in entries(10):
            waiting.add(entry)
        for _ in range(5_000):
            waiting.add(taken(waiting))
        (priority,) = waiting._priorities.values()
        assert len(priority.turns) <= 2 * module._SWEEP_MIN


class TestClients:
    def test_clients_that_come_once_are_forgotten(self) -> None:
        """Also while others wait, and though none of them has a turn that is past."""
        waiting: Waiting[str] = Waiting()
        for number in range(5_000):
            entry = Entry(f"call {number}", client=f"client {number}")
            entry.arrival = number
            waiting.add(entry)
            if number >= 10:
                assert taken(waiting).arrival == number - 10
        assert len(waiting) == 10
        assert len(waiting._turns) <= module._SWEEP_MIN + 2 * len(waiting) + 1

    def test_who_has_had_most_waits_though_others_are_forgotten(self) -> None:
        waiting: Waiting[str] = Waiting()
        greedy, again = (Entry("call", client="greedy", cost=1_000.0) for _ in range(2))
        waiting.add(greedy)
        assert taken(waiting) is greedy
        again.arrival = 1
        waiting.add(again)
        for number in range(2, 900):
            entry = Entry(f"call {number}", client=f"client {number}")
            entry.arrival = number
            waiting.add(entry)
            assert taken(waiting) is entry
        assert taken(waiting) is again


class TestKeys:
    @pytest.mark.parametrize("blocked_max", [1, 4, 1024])
    def test_keys_are_admitted_in_order(
        self, monkeypatch: pytest.MonkeyPatch, blocked_max: int
    ) -> None:
        monkeypatch.setattr(module, "_BLOCKED_MAX", blocked_max)
        works = [Work(f"{number}", 1, key=number // 2) for number in range(40)]
        assert begun(run(works, max_keys=1)) == list(range(40))

    @pytest.mark.parametrize("blocked_max", [1, 8, 1024])
    def test_requests_of_one_key_are_admitted_in_order(
        self, monkeypatch: pytest.MonkeyPatch, blocked_max: int
    ) -> None:
        monkeypatch.setattr(module, "_BLOCKED_MAX", blocked_max)
        works = [Work(f"{number}", 2, key=number % 7) for number in range(140)]
        order = begun(run(works, max_keys=3, max_running=8))
        for key in range(7):
            of_key = [number for number in order if number % 7 == key]
            assert of_key == sorted(of_key)

    def test_clients_take_turns_though_their_keys_wait(self) -> None:
        requests = [
            Arrival(request=Work(f"{number}", 1, key=f"many {number}"), client="many")
            for number in range(50)
        ]
        requests += [
            Arrival(request=Work(f"few {number}", 1, key=f"few {number}"), client="few")
            for number in range(3)
        ]
        assert max(begun(run(requests, max_keys=1)).index(number) for number in (50, 51, 52)) <= 6

    def test_a_deadline_that_cannot_be_met_takes_no_key_from_others(self) -> None:
        requests = [
            Work("first", 20, key="late"),  # So that the time of a step is known.
            Work("a", 3, key="a"),
            Arrival(request=Work("late", 1, key="late"), at_s=21.5, deadline_s=1.5, priority=1),
            Work("b", 1, key="b"),
        ]
        assert begun(run(requests, max_keys=1)) == [0, 1, 3]

    def test_the_work_for_each_key_does_not_grow_with_those_that_wait(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        count, added = 300, 0
        add = Waiting.add

        def counted(self: Waiting[Any], entry: Entry[Any]) -> None:
            nonlocal added
            added += 1
            add(self, entry)

        monkeypatch.setattr(Waiting, "add", counted)
        run([Work(f"{number}", 1, key=number) for number in range(count)], max_keys=4)
        assert added <= 3 * count
