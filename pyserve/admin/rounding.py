"""Rounds numbers to their meaningful digits. Pure."""

from __future__ import annotations

# A microsecond: clocks and histograms are not more precise.
_SECONDS_DIGITS = 6


def seconds(value: float | None) -> float | None:
    """Round a time; ``None`` stays: nothing happened that could have taken it."""
    return None if value is None else round(value, _SECONDS_DIGITS)


def rate(count: int, passed_s: float) -> float:
    """Return how often something happened per second."""
    return round(count / passed_s, 1)


def share(part: int, whole: int) -> float | None:
    """Return a part as a share of the whole; ``None`` if the whole is nothing."""
    return round(part / whole, 5) if whole else None
