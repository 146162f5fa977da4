"""Environment variables for the port where a node shows itself."""

from __future__ import annotations

import pytest

from pyserve.config import read_settings
from pyserve.errors import OptionError


@pytest.mark.parametrize(("value", "tries"), [("", None), ("1", True), ("0", False)])
@pytest.mark.parametrize("port", ["", "0", "off"])
def test_calls_from_the_page_are_as_the_mesh_is_unless_they_are_set(
    port: str, value: str, *, tries: bool | None
):
    found = read_settings({"PYSERVE_METRICS_PORT": port, "PYSERVE_TRY_METHODS": value})
    assert tries is found.metrics.tries


def test_what_is_neither_yes_nor_no_is_refused():
    with pytest.raises(OptionError, match="PYSERVE_TRY_METHODS"):
        read_settings({"PYSERVE_TRY_METHODS": "yes"})
