"""Limits how often costly work that is requested again and again is done. Pure."""

from __future__ import annotations


class Pace:
    """Lets work take a share of the time, and start at once when there is little of it.

    Done work is a debt, which time pays off. While the debt is small nothing waits. If there is
    more work than the share allows, requests are gathered and done together later.

    Args:
        share: of the time that the work may take if it is requested all the time.
        free_s: work that may be done beyond it before anything waits.
        wait_max_s: how long anything waits; the share is more where single work takes longer.
    """

    def __init__(self, share: float, *, free_s: float, wait_max_s: float) -> None:
        self._share = share
        self._free_s = free_s
        self._debt_max_s = free_s + share * wait_max_s
        self._debt_s = 0.0
        self._at = 0.0

    def wait_s(self, now: float) -> float:
        """Return how long the work has to wait, 0 when it may begin."""
        return max((self._debt(now) - self._free_s) / self._share, 0.0)

    def spend(self, took_s: float, now: float) -> None:
        """The work was done, and took so long."""
        self._debt_s, self._at = min(self._debt(now) + took_s, self._debt_max_s), now

    def _debt(self, now: float) -> float:
        return max(self._debt_s - self._share * (now - self._at), 0.0)
