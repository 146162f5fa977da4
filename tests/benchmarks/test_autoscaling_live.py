"""How the benchmark of live autoscaling evaluates its measurements."""

import pytest

from benchmarks.autoscaling_live import FromZero, Step, recovered_after, report_of


def calls(*latencies_s: float) -> list[tuple[float, float]]:
    """Return calls that begin every hundredth of a second, from time 10 on."""
    return [(10 + number / 100, latency_s) for number, latency_s in enumerate(latencies_s)]


@pytest.mark.parametrize(
    ("latencies_s", "expected"),
    [
        ([0.1] * 300, 0.0),
        # The last of those that are late counts, not the first.
        ([0.9] * 50 + [0.1] * 300, 0.46),
        # One in a hundred may be late.
        ([0.1] * 100 + [0.9] + [0.1] * 200, 0.0),
        ([0.1] * 100 + [0.9] * 9 + [0.1] * 200, 1.06),
        ([0.1] * 3 + [0.9], 0.0),
        ([0.9] * 200, 1.98),
    ],
)
def test_recovery_is_the_last_time_that_too_many_are_late(latencies_s, expected):
    assert expected == pytest.approx(recovered_after(10, calls(*latencies_s), 0.15))


def test_what_was_late_before_the_moment_does_not_count():
    assert 0.0 == recovered_after(11, calls(*[0.9] * 50, *[0.1] * 300), 0.15)


def outcome(**changes: object) -> Step:
    values = {"decision_s": 0.4, "ready_s": 2.0, "recovery_s": 0.5, "p99_after_s": 0.1}
    return Step(**{**values, "calls": 900, "failed": {}, **changes})  # type: ignore[arg-type]


def test_targets_hold_for_medians_and_no_call_may_fail():
    zeros = [FromZero(0.9, 0.8), FromZero(1.9, 1.8), FromZero(1.9, 0.9)]
    steps = [outcome(), outcome(decision_s=3.0), outcome()]
    assert [] == report_of(steps, zeros)["missed"]

    steps = [outcome(decision_s=1.1, recovery_s=1.2, p99_after_s=0.2), outcome(failed={"X": 2})]
    late = [FromZero(1.3, 0.9)]
    missed = report_of([*steps, steps[0]], late)["missed"]
    assert [
        "decision_s is 1.100, at most 1 is allowed",
        "recovery_s is 1.200, at most 1 is allowed",
        "p99_after_s is 0.200, at most 0.15 is allowed",
        "extra_s is 0.400, at most 0.2 is allowed",
        "calls failed: {'X': 2}",
    ] == missed
