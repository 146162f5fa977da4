"""The comparison of caches: exact, because it runs in virtual time."""

from dataclasses import replace

import pytest

from benchmarks.multiplexing import REFERENCE, SCENARIOS, Scenario, compare, draw, play
from benchmarks.virtual_time import run_virtual


def scenario(name: str, *, requests: int = 3_000) -> Scenario:
    (found,) = (one for one in SCENARIOS if one.name == name)
    return replace(found, requests=requests)


def test_the_requests_of_a_scenario_are_the_same_every_time():
    one = scenario("equal_loads_20_per_s", requests=100)

    assert draw(one) == draw(one)
    assert run_virtual(play("gdsf", one)) == run_virtual(play("gdsf", one))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["equal_loads_20_per_s", "mixed_loads_5_per_s"])
def test_gdsf_loads_less_often_and_answers_sooner_than_the_reference(name: str):
    outcomes = compare(scenario(name), virtual=True)
    ours, reference = outcomes["gdsf"], outcomes[REFERENCE]

    assert ours.loads_per_request < reference.loads_per_request
    assert ours.p99_ms < reference.p99_ms
    assert ours.mean_ms < reference.mean_ms


@pytest.mark.slow
def test_parallel_loads_alone_lower_the_latency():
    outcomes = compare(scenario("equal_loads_50_per_s"), virtual=True)

    assert outcomes["lru"].p99_ms < 0.5 * outcomes[REFERENCE].p99_ms


@pytest.mark.slow
@pytest.mark.parity("S-36")
@pytest.mark.parametrize("policy", ["lru", "gdsf"])
def test_a_hundred_models_fit_on_twenty_replicas_of_five(policy: str):
    """Once every model has its place, nothing is loaded any more."""
    one = replace(scenario("20_replicas_of_5"), requests=5_000)
    warm = run_virtual(play(policy, one))

    assert warm.loads_per_request <= 0.01
    assert warm.p50_ms == pytest.approx(one.run_s * 1e3)
