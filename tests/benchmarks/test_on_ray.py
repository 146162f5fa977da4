"""How the comparison on a Ray cluster evaluates its pairs."""

from __future__ import annotations

from benchmarks.on_ray.__main__ import TARGETS, compared


def runs(*unary: float, first_answer_s: float) -> list[dict[str, float]]:
    return [
        {
            "unary_per_cpu_s": each,
            "unary_per_s": each,
            "handle_calls_per_cpu_s": each,
            "handle_calls_per_s": each,
            "first_answer_s": first_answer_s,
        }
        for each in unary
    ]


def test_ratios_are_taken_pair_by_pair_and_held_against_the_targets() -> None:
    """The machine was half as fast in the second pair."""
    figures = compared(runs(1_200, 600, first_answer_s=2.0), runs(100, 50, first_answer_s=4.0))

    assert {12.0} == {figures["unary_per_cpu_s"]["ratio"][each] for each in ("least", "most")}
    assert TARGETS.keys() == {name for name, each in figures.items() if each.get("met")}


def test_what_is_not_reached_is_not_met() -> None:
    figures = compared(runs(400, first_answer_s=5.0), runs(100, first_answer_s=4.0))

    assert dict.fromkeys(TARGETS, False) == {
        name: each["met"] for name, each in figures.items() if "met" in each
    }
