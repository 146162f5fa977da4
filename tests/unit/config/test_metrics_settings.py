"""How a node shows its metrics, as the environment says it."""

import pytest

from pyserve.config import read_settings
from pyserve.config.telemetry import MetricsSettings
from pyserve.errors import OptionError

BUCKETS = "PYSERVE_REQUEST_LATENCY_BUCKETS_MS"


def read(**variables: str) -> MetricsSettings:
    return read_settings({"PYSERVE_HOME": "/h", **variables}).metrics


def test_without_variables_the_port_is_9101_and_all_bounds_are_shown():
    assert MetricsSettings(port=9101) == read()
    assert MetricsSettings(port=9101) == read(**{BUCKETS: " "})


def test_bounds_are_milliseconds():
    assert (0.5, 1.0, 20.0) == read(**{BUCKETS: "0.5,1, 20"}).request_bounds_ms


@pytest.mark.parametrize("value", ["1,1", "5,2", "0,1", "-1", "1,x", "1,,2", "nan", "inf", "1;2"])
def test_bounds_that_do_not_grow_are_refused_by_their_name(value: str):
    with pytest.raises(OptionError, match=rf"{BUCKETS}.*growing"):
        read(**{BUCKETS: value})
