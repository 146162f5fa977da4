"""Erlang's C against its published tables, and what is derived from it."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyserve.control.autoscaling.latency import erlang_c, servers_for, share_beyond


@pytest.mark.parametrize(
    ("servers", "load", "share"),
    [
        (1, 0.5, 0.5),  # M/M/1: the share is the load
        (2, 1.0, 1 / 3),
        (10, 8.0, 0.4092),  # tables of Erlang C
        (100, 90.0, 0.2169),
        (3, 3.0, 1.0),  # as many as there is to do: all wait
    ],
)
def test_erlang_c_is_that_of_the_tables(servers: int, load: float, share: float):
    assert share == pytest.approx(erlang_c(servers, load), abs=1e-4)


def test_one_server_has_the_exponential_tail():
    found = share_beyond(1, 0.5, 2.0, variability=1.0)

    assert 0.5 * math.exp(-1.0) == pytest.approx(found)


@given(
    st.floats(0.01, 300),
    st.floats(0.05, 10),
    st.floats(0.5, 10),
    st.sampled_from([0.5, 0.1, 0.01]),
)
def test_the_fewest_servers_are_enough_and_one_less_is_not(
    load: float, limit: float, variability: float, share: float
):
    found = servers_for(load, limit, variability=variability, share=share, servers_max=100_000)

    assert share >= share_beyond(found, load, limit, variability)
    assert found == 1 or share < share_beyond(found - 1, load, limit, variability)


def test_where_none_suffice_it_is_the_most_there_may_be():
    assert 7 == servers_for(50.0, 1.0, variability=1.0, share=0.01, servers_max=7)
