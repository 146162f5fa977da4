"""How ``make bench NAME=zones`` counts and judges."""

from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.zones.__main__ import Turn, judged
from benchmarks.zones.journals import calls, share_that_stays

GOOD = Turn(stays=0.97, p99_ms=20.0, p99_after_loss_ms=30.0, failed=8)


def test_journals_tell_who_was_called_from_where(tmp_path: Path) -> None:
    (tmp_path / "east-Echo#1").write_text("5 east\n10 east\n15 west\n20 east\n")
    (tmp_path / "west-Echo#2").write_text("12 west\n19 east\n")
    counted = calls(tmp_path, 10, 20)
    assert {
        ("east", "east"): 1,
        ("west", "east"): 1,
        ("west", "west"): 1,
        ("east", "west"): 1,
    } == counted
    assert share_that_stays(counted) == 0.5
    assert share_that_stays(calls(tmp_path, 100, 200)) == 0.0


@pytest.mark.parametrize(
    ("ours", "is_met"),
    [
        (GOOD, True),
        (replace(GOOD, stays=0.94), False),
        (replace(GOOD, p99_after_loss_ms=46.0), False),
        (replace(GOOD, failed=17), False),
    ],
)
def test_each_bar_can_be_missed(ours: Turn, is_met: bool) -> None:
    assert is_met is judged({"tiers": [ours] * 3, "none": [GOOD] * 3})["met"]
