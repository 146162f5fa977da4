"""A driver that does not read its deploy keeps a bounded number of lines, and the last word."""

from __future__ import annotations

from pyserve.control.admission import DeployWatch
from pyserve.types import ApplicationName


async def test_a_driver_that_does_not_read_misses_the_oldest_lines_only() -> None:
    watch = DeployWatch(ApplicationName("shop"), {})
    for number in range(5_000):
        watch.notice(f"{number}")
    watch.failed("Echo", "it has no room")

    events = [event async for event in watch.events()]

    assert 1_000 == len(events)
    assert "4999" == events[-2].notice
    assert "it has no room" == events[-1].failed.summary
