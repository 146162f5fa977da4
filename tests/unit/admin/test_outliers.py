"""Which replica is called an outlier, and what is said of it."""

import pytest

from pyserve.admin.api.outliers import Served, outliers


def served(
    mean_s: float, calls: int = 100, failed: int = 0, median_s: float | None = None
) -> Served:
    return Served(calls, failed, mean_s, mean_s if median_s is None else median_s)


def check(expected: dict[str, str], **replicas: Served) -> None:
    assert expected == outliers(replicas)


def test_one_that_is_slow_among_equals():
    check(
        {"c": "3.0 × as slow as its siblings"},
        a=served(0.01),
        b=served(0.01),
        c=served(0.03),
    )


def test_of_two_the_slower_one_is_the_outlier():
    check({"b": "10.0 × as slow as its siblings"}, a=served(0.01), b=served(0.1))


@pytest.mark.parametrize("mean_s", [0.005, 0.01, 0.019])
def test_what_is_less_than_twice_as_slow_is_no_outlier(mean_s: float):
    check({}, a=served(0.01), b=served(0.01), c=served(mean_s))


def test_siblings_that_differ_among_themselves_allow_more():
    scattered = {f"r{number}": served(0.01 * number) for number in range(1, 8)}
    check({}, **scattered, slow=served(0.14))
    assert {"slow"} == set(outliers({**scattered, "slow": served(0.3)}))


def test_one_whose_calls_fail():
    check(
        {"c": "30.0% of its calls fail, 1.0% of its siblings'"},
        a=served(0.01, failed=1),
        b=served(0.01, failed=1),
        c=served(0.01, failed=30),
    )


@pytest.mark.parametrize("failed", [0, 1, 3])
def test_a_few_failures_are_chance(failed: int):
    check({}, a=served(0.01), b=served(0.01), c=served(0.01, failed=failed))


def test_what_is_certain_and_little_is_not_told():
    check(
        {},
        a=served(0.01, calls=1_000_000),
        b=served(0.01, calls=1_000_000, failed=5_000),
    )


def test_fast_and_failing_is_an_outlier_for_failing_alone():
    check(
        {"b": "100.0% of its calls fail, 0.0% of its siblings'"},
        a=served(0.01),
        b=served(0.0001, failed=100),
    )


def test_one_slow_call_among_few_is_a_beginning_and_many_are_slow():
    check({}, a=served(0.01), b=served(0.05, calls=6, median_s=0.011))
    words = "5.0 × as slow as its siblings"
    check({"b": words}, a=served(0.01), b=served(0.05, calls=6, median_s=0.05))
    check({"b": words}, a=served(0.01), b=served(0.05, calls=60, median_s=0.011))


def test_few_calls_and_no_siblings_say_nothing():
    check({}, a=served(0.01), b=served(1.0, calls=4))
    check({}, a=served(0.01))
    check({}, a=Served(20, 20, None, None), b=Served(20, 20, None, None))
