"""Which policies are late: one line for each deployment, with a count, at most one a minute."""

import logging

import pytest

from pyserve.routing.feed import LatePolicies


class Watched:
    """Counts of two deployments, and a clock, that the test moves."""

    def __init__(self, log: pytest.LogCaptureFixture) -> None:
        self.now = 0.0
        self.counts: dict[str, int] = {}
        self._log = log
        self._late = LatePolicies(lambda: self.counts, lambda: self.now)

    def look(self, now: float, **counts: int) -> list[tuple[object, ...]]:
        """Return the deployments that the lines name, and how often each was late."""
        self.now, self.counts = now, counts
        self._log.clear()
        self._late.look()
        return [record.args for record in self._log.records if isinstance(record.args, tuple)]


@pytest.fixture
def watched(caplog: pytest.LogCaptureFixture) -> Watched:
    caplog.set_level(logging.WARNING, "pyserve.routing.feed")
    return Watched(caplog)


def test_a_late_policy_is_named_at_once_and_once_a_minute_with_what_came_since(
    watched: Watched, caplog: pytest.LogCaptureFixture
) -> None:
    assert [] == watched.look(0)
    assert [("a", 3)] == watched.look(1, a=3)
    assert "the policy of a has not answered within 100 ms 3 times" in caplog.text
    assert [("b", 1)] == watched.look(2, a=4, b=1)
    assert [] == watched.look(60, a=9, b=1)
    assert [("a", 6)] == watched.look(61, a=9, b=1)
    assert [] == watched.look(1000, a=9, b=1)


def test_a_new_policy_is_counted_anew(watched: Watched) -> None:
    assert [("a", 5)] == watched.look(0, a=5)
    assert [("a", 2)] == watched.look(60, a=2)
    assert [] == watched.look(300)
    assert [("a", 2)] == watched.look(301, a=2)
