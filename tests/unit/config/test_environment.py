"""What the variables of a process mean."""

import warnings

import pytest

from pyserve.config import ConcurrencySettings, inherited_environment, read_settings
from pyserve.errors import OptionError


def concurrency(**variables: str) -> ConcurrencySettings:
    return read_settings(variables).concurrency


@pytest.mark.parity("S-54")
def test_the_profile_changes_what_is_not_set_by_itself():
    assert ConcurrencySettings(user_code_in_separate_thread=True, loop_stall_s=0.1) == concurrency()
    assert not concurrency(PYSERVE_THROUGHPUT_OPTIMIZED="1").user_code_in_separate_thread
    assert concurrency(
        PYSERVE_THROUGHPUT_OPTIMIZED="1", PYSERVE_RUN_USER_CODE_IN_SEPARATE_THREAD="1"
    ).user_code_in_separate_thread
    assert not concurrency(
        PYSERVE_THROUGHPUT_OPTIMIZED="0", PYSERVE_RUN_USER_CODE_IN_SEPARATE_THREAD="0"
    ).user_code_in_separate_thread


@pytest.mark.parity("S-54")
def test_the_names_of_ray_serve_are_read_with_one_warning():
    with pytest.warns(UserWarning, match="RAY_SERVE_THROUGHPUT_OPTIMIZED") as caught:
        found = concurrency(RAY_SERVE_THROUGHPUT_OPTIMIZED="1")

    assert not found.user_code_in_separate_thread
    assert [
        "RAY_SERVE_THROUGHPUT_OPTIMIZED is read as PYSERVE_THROUGHPUT_OPTIMIZED; "
        "write PYSERVE_THROUGHPUT_OPTIMIZED"
    ] == [str(warning.message) for warning in caught]


@pytest.mark.parity("S-54")
def test_our_own_name_wins_over_the_other():
    with pytest.warns(UserWarning, match="RAY_SERVE"):
        found = concurrency(
            RAY_SERVE_RUN_USER_CODE_IN_SEPARATE_THREAD="1",
            PYSERVE_RUN_USER_CODE_IN_SEPARATE_THREAD="0",
        )

    assert not found.user_code_in_separate_thread


def test_children_are_given_the_new_names_and_do_not_warn_again(monkeypatch):
    monkeypatch.setenv("RAY_SERVE_THROUGHPUT_OPTIMIZED", "1")
    environment = inherited_environment({})

    assert "1" == environment["PYSERVE_THROUGHPUT_OPTIMIZED"]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert not read_settings(environment).concurrency.user_code_in_separate_thread


@pytest.mark.parametrize("value", ["0", "1"])
def test_the_loop_of_the_router_is_accepted_and_changes_nothing(value: str):
    assert concurrency() == concurrency(PYSERVE_RUN_ROUTER_IN_SEPARATE_LOOP=value)


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("PYSERVE_THROUGHPUT_OPTIMIZED", "yes", "1 for yes, 0 for no"),
        ("PYSERVE_RUN_ROUTER_IN_SEPARATE_LOOP", "2", "1 for yes, 0 for no"),
        ("PYSERVE_LOOP_STALL_S", "-1", "a number of seconds of at least 0"),
        ("PYSERVE_LOOP_STALL_S", "nan", "a number of seconds of at least 0"),
        ("PYSERVE_LOOP_STALL_S", "soon", "a number of seconds of at least 0"),
        ("PYSERVE_BIND_HOST", "not an address", "an address of this machine"),
    ],
)
def test_a_value_that_cannot_be_used_is_refused_by_name(name: str, value: str, text: str):
    with pytest.raises(OptionError, match=f"{name}.*{text}"):
        concurrency(**{name: value})
