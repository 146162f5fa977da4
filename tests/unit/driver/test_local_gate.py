"""The gate of local testing mode: who runs, who waits, who is refused."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyserve.driver.local.gate import Gate


def test_calls_run_up_to_the_limit_then_wait_then_are_refused():
    gate: Gate[str] = Gate(2, 1)

    assert ["run", "run", "wait", "refuse"] == [gate.offer(name) for name in "abcd"]
    assert (2, 1) == (gate.running, gate.waiting)


def test_the_oldest_of_the_highest_priority_is_next():
    gate: Gate[str] = Gate(1, 10)
    gate.offer("first")
    for name, priority in (("old", 0), ("young", 0), ("urgent", 5), ("low", -1)):
        gate.offer(name, priority=priority)

    assert ["urgent", "old", "young", "low"] == [name for _ in range(4) for name in gate.leave(1)]
    assert [] == gate.leave(1)


def test_weights_count_and_nobody_overtakes_a_heavy_call():
    gate: Gate[str] = Gate(3, 10)

    assert "run" == gate.offer("light")
    assert "wait" == gate.offer("heavy", weight=3)
    assert "wait" == gate.offer("behind it")
    assert "run" == gate.offer("weightless", weight=0)
    assert ["heavy"] == gate.leave(1)
    assert ["behind it"] == gate.leave(3)


def test_a_call_heavier_than_the_limit_is_refused():
    assert "refuse" == Gate[str](2, 10).offer("too heavy", weight=3)


def test_who_leaves_the_queue_makes_room_for_those_behind():
    gate: Gate[str] = Gate(2, 10)
    gate.offer("runs")
    gate.offer("heavy", weight=2)
    gate.offer("behind")

    assert ["behind"] == gate.withdraw("heavy")
    assert gate.withdraw("heavy") is None
    assert gate.withdraw("runs") is None


def test_closing_empties_the_queue_in_order():
    gate: Gate[str] = Gate(1, 10)
    for name, priority in (("runs", 0), ("second", 0), ("left", 0), ("first", 1)):
        gate.offer(name, priority=priority)
    gate.withdraw("left")

    assert ["first", "second"] == gate.close()
    assert 0 == gate.waiting
    assert [] == gate.leave(1)


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["offer", "leave", "withdraw"]), st.integers(0, 3), st.integers(0, 9)
    ),
    max_size=60,
)


@pytest.mark.parity("G-56")
@pytest.mark.slow
@given(limit=st.integers(1, 4), queue_len_max=st.integers(0, 5), steps=STEPS)
def test_no_call_is_lost_doubled_or_let_in_too_early(limit: int, queue_len_max: int, steps):
    gate: Gate[int] = Gate(limit, queue_len_max)
    weights: dict[int, int] = {}
    running: list[int] = []
    waiting: list[int] = []

    def admit(calls: list[int]) -> None:
        for call in calls:
            waiting.remove(call)  # Raises for a call that did not wait.
            running.append(call)

    for number, (step, weight, choice) in enumerate(steps):
        if step == "offer":
            weights[number] = weight
            decision = gate.offer(number, weight=weight)
            if decision != "refuse":
                (running if decision == "run" else waiting).append(number)
        elif step == "leave" and running:
            call = running.pop(choice % len(running))
            admit(gate.leave(weights[call]))
        elif step == "withdraw" and waiting:
            call = waiting.pop(choice % len(waiting))
            admit(gate.withdraw(call) or [])
        assert sum(weights[call] for call in running) == gate.running <= limit
        assert len(waiting) == gate.waiting <= queue_len_max
        if waiting:
            assert gate.running + weights[min(waiting)] > limit
