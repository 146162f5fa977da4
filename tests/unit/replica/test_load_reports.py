"""A replica's reports of its load, and which numbers of its class they contain."""

import pytest

from pyserve.replica.control_tasks import BUSY_PERIOD_S, IDLE_PERIOD_S, LoadCounter, stats_json


def test_time_that_calls_spend_is_summed_up():
    counter = LoadCounter()
    counter.look(0, 0, 1.0)
    counter.look(2, 2, 1.1)
    counter.look(2, 2, 2.1)

    load = counter.look(0, 3, 2.2)

    assert load is not None
    assert (0, 3) == (load.ongoing, load.calls)
    assert 2.2 == pytest.approx(load.busy_s)


def test_nothing_is_told_twice_and_rest_is_looked_at_less_often():
    counter = LoadCounter()

    told = [counter.look(0, 4, now) is not None for now in (0.0, 0.1, 0.2, 12.0)]

    assert [True, False, False, False] == told
    assert (BUSY_PERIOD_S, IDLE_PERIOD_S) == (counter.period_s(5.0), counter.period_s(12.0))
    assert counter.look(1, 5, 12.25) is not None
    assert BUSY_PERIOD_S == counter.period_s(12.25)


@pytest.mark.parity("G-28")
@pytest.mark.parametrize(
    ("value", "said"),
    [
        (3, "int instead of a dict"),
        ({"depth": "deep"}, "its 'depth' is 'deep', no number"),
        ({"depth": float("nan")}, "infinite, or none"),
        ({str(index): 1 for index in range(65)}, "65 metrics; at most 64"),
    ],
)
def test_what_is_no_dict_of_numbers_is_refused(value: object, said: str):
    with pytest.raises(ValueError, match=said):
        stats_json(value)


def test_numbers_travel():
    assert '{"depth": 3.0}' == stats_json({"depth": 3})
