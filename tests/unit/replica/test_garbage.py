"""How a replica sets the garbage collector, each time in an interpreter of its own."""

from __future__ import annotations

import subprocess
import sys

import pytest


@pytest.mark.parametrize(
    ("before", "expected"),
    [
        ("pass", "YOUNG_MAX, *defaults[1:]"),
        ("gc.set_threshold(123, 4, 5)", "123, 4, 5"),
        ("gc.set_threshold(0, *defaults[1:])", "0, *defaults[1:]"),
    ],
)
def test_young_objects_are_looked_at_rarely_unless_somebody_has_chosen(
    before: str, expected: str
) -> None:
    program = f"""
import gc
defaults = gc.get_threshold()
from pyserve.replica.garbage import YOUNG_MAX, settle
{before}
settle()
assert gc.get_freeze_count() > 1000, "what is loaded is walked through no more"
print(gc.get_threshold() == ({expected}))
"""
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True
    )
    assert "True" == ended.stdout.strip()
