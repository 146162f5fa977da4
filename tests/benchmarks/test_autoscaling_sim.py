"""The short form of the simulated loads: the shipping policies against oracle and others' rules."""

import pytest

from benchmarks.autoscaling_sim import (
    SHARE_BEYOND,
    Oracle,
    Outcome,
    Scenario,
    compare,
    needed,
    play,
    policies,
    scenarios,
)

_SCALE = 0.2


def _played(name: str, cold_start_s: float, *chosen: str) -> dict[str, Outcome]:
    scenario = next(each for each in scenarios(_SCALE) if each.name == name)
    made = policies(scenario, cold_start_s)
    return {
        each: play(scenario, cold_start_s, made[each], each, seed=3) for each in ("oracle", *chosen)
    }


@pytest.mark.slow
@pytest.mark.parametrize(
    ("scenario", "cold_start_s"), [("step", 1.0), ("ramp", 1.0), ("ramp", 10.0), ("day", 10.0)]
)
def test_latency_keeps_its_target_with_little_more_than_an_oracle_takes(
    scenario: str, cold_start_s: float
):
    played = _played(scenario, cold_start_s, "latency")
    oracle, latency = played["oracle"], played["latency"]

    assert latency.beyond_target_foreseeable <= SHARE_BEYOND
    # The loads are a fifth as long as those of the bar (1.15), and delays are not.
    assert latency.replica_seconds <= 1.25 * oracle.replica_seconds


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
def test_a_job_that_comes_again_finds_its_replicas_from_the_third_time_on(seed: int):
    """Each lasts twice as long as a replica takes to start: without foresight half of it waits."""
    every_s = 90.0

    def rate(now: float) -> float:
        return 240.0 if now % every_s >= every_s - 20 else 30.0

    first, second = every_s - 20, 2 * every_s - 20
    scenario = Scenario("jobs", 6 * every_s, rate, (first, second))
    made = policies(scenario, 10.0)
    oracle, latency = (
        play(scenario, 10.0, made[each], each, seed=seed) for each in ("oracle", "latency")
    )

    assert latency.beyond_target > SHARE_BEYOND, "of the first two"
    assert latency.beyond_target_foreseeable <= SHARE_BEYOND
    # Periods are known to five seconds, and ten are waited for: much, beside a job of twenty.
    assert latency.replica_seconds <= 1.35 * oracle.replica_seconds


@pytest.mark.slow
def test_the_rule_decides_sooner_here_than_with_ray_serves_delays():
    played = _played("step", 1.0, "calls at once", "Ray Serve", "Kubernetes")
    ours = played["calls at once"].beyond_target

    assert ours < played["Ray Serve"].beyond_target / 5
    assert ours < played["Kubernetes"].beyond_target / 5


def test_the_same_seed_plays_the_same():
    scenario = scenarios(0.02)[0]

    first, second = compare(scenario, 1.0), compare(scenario, 1.0)

    assert first == second
    assert ["oracle", 1.0] == [first[0].policy, first[0].of_oracle]


def test_the_oracle_has_what_a_load_needs_before_it_comes():
    def rate(now: float) -> float:
        return 480.0 if now >= 10 else 60.0

    oracle = Oracle(rate, cold_start_s=3.0)
    cluster = None  # It looks at the load alone.

    assert needed(60.0) == oracle.target(cluster, 6.0)  # type: ignore[arg-type]
    assert needed(480.0) == oracle.target(cluster, 7.0)  # type: ignore[arg-type]
