"""Which replica is called an outlier, and what is said of it."""

import numpy as np
import pytest

from pyserve.admin.api.outliers import LOOKS_PER_HOUR, Served, outliers
from pyserve.admin.api.sampler import INTERVAL_S
from tests.unit.admin.fleets import histogram


def served(*each_s: float, calls: int = 100, failed: int = 0) -> Served:
    """Return what a replica did whose calls took these times by turns."""
    return Served(calls, failed, histogram(np.resize(np.array(each_s), calls)))


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


def test_twice_as_slow_shows_within_one_bucket_too():
    """Both are between two bounds, 10 and 25 ms: their means differ."""
    check({"b": "2.0 × as slow as its siblings"}, a=served(0.012), b=served(0.024))


@pytest.mark.parametrize("mean_s", [0.005, 0.01, 0.0149])
def test_a_small_factor_does_not_matter_however_certain_it_is(mean_s: float):
    check({}, a=served(0.01, calls=5000), b=served(0.01), c=served(mean_s, calls=5000))


def test_a_small_difference_beside_a_bound_is_small():
    """The short calls of both are beside 1 ms, and the longer ones of one came in by chance."""
    check(
        {},
        a=served(*[0.00099] * 19, 0.3, calls=200),
        b=served(*[0.00099] * 19, 0.3, calls=200),
        c=served(*[0.00101] * 8, 0.3, 0.3, calls=200),
    )


def test_several_may_be_slow_as_long_as_they_are_a_minority():
    """A replica that is slower than an outlier is one too."""
    found = outliers(
        {
            **{f"r{number}": served(0.01) for number in range(4)},
            "slow": served(0.05),
            "slower": served(0.08),
            "slowest": served(0.2),
        }
    )
    assert {"slow", "slower", "slowest"} == set(found)


def test_the_slowest_with_few_calls_is_not_hidden_by_others_that_are_slow():
    """It is judged first, while the calls of the others still make five calls look like chance."""
    others = {f"r{number}": served(0.002) for number in range(4)}
    slow = {"many": served(0.0065, calls=80), "more": served(0.0064, calls=80)}
    slow |= {"few": served(0.006, calls=5), "slowest": served(0.014, calls=5)}
    assert slow.keys() == outliers(others | slow).keys()


def test_one_whose_few_calls_all_fail_is_not_hidden_by_others_that_fail():
    others = {f"r{number}": served(0.01, calls=50) for number in range(4)}
    failing = {"many": served(0.01, calls=80, failed=64), "more": served(0.01, calls=80, failed=64)}
    failing |= {"few": served(0.01, calls=5, failed=5)}
    assert failing.keys() == outliers(others | failing).keys()


def test_one_that_gets_more_of_the_long_calls_is_not_slow():
    """Its short calls are as short as those of the others."""
    check({}, a=served(*[0.001] * 9, 0.3), b=served(*[0.001] * 9, 0.3), c=served(0.001, 0.3, 0.3))


def test_one_that_gets_nothing_but_long_calls_is_not_slow_if_they_are_of_another_method():
    long, short = histogram(np.full(100, 0.3)), histogram(np.full(100, 0.001))
    replicas = {
        "a": Served(
            200, 0, histogram(np.repeat([0.3, 0.001], 100)), {"long": long, "short": short}
        ),
        "b": Served(100, 0, short, {"short": short}),
        "c": Served(100, 0, long, {"long": long}),
        "d": Served(100, 0, short, {"short": short}),
    }
    check({}, **replicas)
    unknown = {**replicas, "a": Served(200, 0, replicas["a"].times)}
    assert {"c"} == set(outliers(unknown)), "without methods of all, all calls are compared"


def test_one_that_is_slow_in_one_method_is_named_with_it():
    long, short = histogram(np.full(100, 0.3)), histogram(np.full(100, 0.001))
    slow, both = histogram(np.full(100, 0.004)), histogram(np.repeat([0.3, 0.001], 100))
    sound = Served(200, 0, both, {"long": long, "short": short})
    check(
        {"c": "4.0 × as slow as its siblings in short"},
        a=sound,
        b=sound,
        c=Served(200, 0, both, {"long": long, "short": slow}),
    )


def test_siblings_that_fail_are_no_measure_for_times():
    check(
        {"b": "100.0% of its calls fail, 0.0% of its siblings'"},
        a=served(0.01),
        b=served(0.0001, failed=100),
    )


def test_one_whose_calls_fail():
    check(
        {"c": "30.0% of its calls fail, 1.0% of its siblings'"},
        a=served(0.01, failed=1),
        b=served(0.01, failed=1),
        c=served(0.01, failed=30),
    )


@pytest.mark.parametrize("failed", [0, 1, 5])
def test_a_few_failures_are_chance(failed: int):
    """Two of twenty are chance even where a sibling has none in two thousand."""
    check({}, a=served(0.01), b=served(0.01), c=served(0.01, failed=failed))
    check({}, a=served(0.01, calls=2000), b=served(0.01, calls=20, failed=min(failed, 2)))


def test_what_is_certain_and_little_is_not_told():
    check(
        {},
        a=served(0.01, calls=1_000_000),
        b=served(0.01, calls=1_000_000, failed=5_000),
    )


def test_first_calls_of_a_new_process_are_a_beginning():
    check({}, a=served(0.01), b=served(0.5, 0.5, 0.01, 0.01, 0.01, 0.01, calls=6))
    check({"b": "50.0 × as slow as its siblings"}, a=served(0.01), b=served(0.5, calls=6))


def test_times_above_all_bounds_are_slow_too():
    assert {"b"} == set(outliers({"a": served(1.0), "b": served(90.0)}))


def test_few_calls_and_no_siblings_say_nothing():
    check({}, a=served(0.01), b=served(1.0, calls=4))
    check({}, a=served(0.01))
    nothing = histogram(np.array([]))
    check({}, a=Served(20, 20, nothing), b=Served(20, 20, nothing))


def test_calls_that_take_no_time_say_nothing():
    check({}, a=served(0.0), b=served(0.0))


def test_each_look_of_an_hour_has_its_share_of_the_chance_to_be_wrong():
    assert 3600 / INTERVAL_S == LOOKS_PER_HOUR
