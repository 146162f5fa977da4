"""How the cost of telemetry is computed."""

from __future__ import annotations

import json

import pytest

from benchmarks import telemetry
from benchmarks.comparison import Spread


def test_the_interval_lies_around_the_median_and_shrinks_with_more_values():
    few, many = [0.9, 1.0, 1.1], [0.9, 1.0, 1.1] * 30
    low, high = telemetry.confidence(few)
    assert (low, high) == (0.9, 1.1)
    assert telemetry.confidence(many) == (1.0, 1.0)
    assert telemetry.confidence(few) == (low, high), "it is the same each time"


@pytest.mark.usefixtures("program")
def test_each_side_is_measured_and_traces_and_events_have_come(tmp_path):
    output = tmp_path / "telemetry.json"
    code = telemetry.main(
        ["--rounds", "1", "--turns", "1", "--seconds", "1.5", "--output", str(output)]
    )
    found = json.loads(output.read_text(encoding="utf-8"))
    assert found["wrong"] == 0
    assert found["spans"] > 0
    assert found["events"] >= 1
    assert set(found["cpu_us_per_request"]) == {"quiet", "usual", "traced", "watched"}
    met = [bar["met"] for bar in found["bars"]]
    assert code == (0 if all(met) else 1)
    for bar in found["bars"]:
        assert bar["interval"]["low"] <= Spread(**bar["ratio"]).median <= bar["interval"]["high"]
