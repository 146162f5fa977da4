"""What pairs of runs amount to."""

import json

import pytest

from benchmarks.chart import factors
from benchmarks.comparison import Pair, Spread, compare
from benchmarks.measure import METRICS, Run, run_of
from benchmarks.workloads import WORKLOADS

BY_NAME = {workload.name: workload for workload in WORKLOADS}


def run(errors=(), share=0.5, **metrics):
    values = {**dict.fromkeys(METRICS, 1.0), **metrics}
    return Run(values, generator_share=share, server_share=1, processes=1, errors=dict(errors))


def compared(name, metric, values, **ours):
    pairs = [
        Pair(run(**{metric: mine}, **ours), run(**{metric: theirs})) for mine, theirs in values
    ]
    return compare(BY_NAME[name], pairs)


def test_a_spread_has_median_quartiles_and_ends():
    assert Spread(3, 2, 4, 1, 5) == Spread.of([5, 1, 4, 2, 3])
    assert Spread(7, 7, 7, 7, 7) == Spread.of([7])


def test_ratios_are_taken_pair_by_pair():
    """The medians are 20 and 10, so their ratio is 2; the median of the ratios is 4."""
    values = [(10, 10), (20, 5), (100, 20)]
    assert 4 == compared("unary_64", "requests_per_s", values).ratios["requests_per_s"].median


@pytest.mark.parametrize(
    ("name", "metric", "ours", "met"),
    [
        ("unary_64", "cpu_us_per_request", 12.5, True),
        ("unary_64", "cpu_us_per_request", 12.6, False),
        ("suspend_64", "cpu_us_per_request", 14.2, True),
        ("suspend_64", "cpu_us_per_request", 14.4, False),
        ("unary_1", "p50_ms", 50, True),
        ("unary_1", "p50_ms", 51, False),
        ("stream_100", "messages_per_cpu_s", 800, True),
        ("stream_100", "messages_per_cpu_s", 799, False),
        ("echo_1mib", "mb_per_s", 200, True),
        ("echo_1mib", "mb_per_s", 199, False),
    ],
)
def test_targets_are_those_of_the_design(name, metric, ours, met):
    assert met is compared(name, metric, [(ours, 100)]).target_is_met


def test_a_wrong_answer_misses_every_target_and_is_told():
    comparison = compared(
        "unary_64", "cpu_us_per_request", [(1, 100)], errors={"UNAVAILABLE": 3}.items()
    )
    assert not comparison.target_is_met
    assert ["3 wrong answers: UNAVAILABLE"] == comparison.warnings(separate_cpus=True)


def test_a_busy_generator_and_shared_cpus_are_told():
    comparison = compared("unary_64", "p50_ms", [(1, 1)], share=0.95)
    warnings = comparison.warnings(separate_cpus=False)
    assert 2 == len(warnings)
    assert "95%" in warnings[1]


def test_a_chart_shows_longer_bars_for_what_is_better():
    small = compared("unary_64", "cpu_us_per_request", [(10, 100), (20, 100), (5, 100)])
    assert pytest.approx((10, 5, 20, 8)) == factors(small)
    large = compared("echo_1mib", "mb_per_s", [(300, 100), (200, 100), (400, 100)])
    assert pytest.approx((3, 2, 4, 2)) == factors(large)


def test_a_comparison_is_plain_data():
    comparison = compared("unary_64", "cpu_us_per_request", [(10, 100)])
    document = json.loads(json.dumps(comparison.as_json(separate_cpus=True)))
    assert document["target"]["met"]
    assert 0.1 == document["ratios"]["cpu_us_per_request"]["median"]
    assert 10 == document["pairs"][0]["ours"]["metrics"]["cpu_us_per_request"]


def test_a_run_divides_cpu_time_by_what_was_answered():
    report = {
        "requests": 1000, "messages": 2000, "requests_per_s": 500, "received_mb_per_s": 3,
        "latency_ms": {"p50": 1.5, "p99": 9}, "errors": {}, "cpu_share": 0.25, "window_s": 2.0,
    }  # fmt: skip
    made = run_of(report, used_s=0.5, rss_bytes=2**21, processes=3)
    assert 500 == made.metrics["cpu_us_per_request"]
    assert 4000 == made.metrics["messages_per_cpu_s"]
    assert (1.5, 9, 2) == tuple(made.metrics[name] for name in ("p50_ms", "p99_ms", "rss_mib"))
    assert (0.25, 0.25) == (made.generator_share, made.server_share)
