"""How a process sets the garbage collector, each time in an interpreter of its own."""

from __future__ import annotations

import subprocess
import sys

import pytest


def output_of(program: str) -> str:
    """Return what a program prints."""
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True
    )
    return ended.stdout.strip()


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
from pyserve.garbage import YOUNG_MAX, settle
{before}
settle()
assert gc.get_freeze_count() > 1000, "what is loaded is walked through no more"
print(gc.get_threshold() == ({expected}))
"""
    assert "True" == output_of(program)


@pytest.mark.parametrize("switch", ["enable", "disable"])
def test_nothing_is_collected_while_modules_are_imported(switch: str) -> None:
    program = f"""
import gc
from pyserve.garbage import importing
gc.{switch}()
before = gc.get_stats()
with importing():
    import pyserve.config
after = gc.get_stats()
assert before == after, "no collection has run"
assert gc.get_freeze_count() > 1000, "what is loaded is walked through no more"
print(gc.isenabled())
"""
    assert str(switch == "enable") == output_of(program)


@pytest.mark.parametrize(("end", "expected"), [("pass", "freed"), ("end_uncollected()", "")])
def test_the_interpreter_ends_without_a_collection_if_told_so(end: str, expected: str) -> None:
    program = f"""
import gc
from pyserve.garbage import end_uncollected
class Cycle:
    def __init__(self):
        self.own = self
    def __del__(self):
        print("freed")
{end}
gc.disable()
Cycle()
gc.enable()
"""
    assert expected == output_of(program)
