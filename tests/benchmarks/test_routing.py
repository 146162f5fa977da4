"""The router benchmarks of Ray Serve's guides, with fewer replicas and for seconds.

The guides' figures are of other machines; asked here is their rate per processor, and that no call
fails or times out.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest

import pyserve
from benchmarks.routing import applications
from benchmarks.routing.__main__ import ensemble, maze, measure, plain

pytestmark = [pytest.mark.slow, pytest.mark.alone, pytest.mark.timeout(120)]

_SECONDS = 2.0
_PROCESSORS = len(os.sched_getaffinity(0))


@pytest.fixture(scope="module", autouse=True)
def mesh() -> Iterator[None]:
    pyserve.start(address="127.0.0.1:0")
    try:
        yield
    finally:
        pyserve.shutdown(grace_s=1.0)


@pytest.mark.parity("S-90")
def test_replicas_that_do_nothing_answer_at_the_guides_rate_and_overhead() -> None:
    """3 000 to 4 000 calls a second on eight processors; 1 to 2 ms on top of the handler."""

    async def work(handle: pyserve.DeploymentHandle) -> dict[str, object]:
        return {"many": await plain(handle, 64, _SECONDS), "one": await plain(handle, 1, _SECONDS)}

    figures: dict[str, Any] = measure("noop_8", applications.noops(8), work)
    many, one = figures["many"], figures["one"]
    assert (0, 0) == (many["failed"], one["failed"])
    assert many["calls_per_s"] >= 4_000 / 8 * min(_PROCESSORS, 8)
    assert one["p50_ms"] <= 2.0


@pytest.mark.parity("S-91")
def test_many_replicas_that_do_nothing_lose_no_call() -> None:
    """553 calls a second of each machine, which had 32 processors and 30 of 1 000 replicas."""
    figures: dict[str, Any] = measure(
        "noop_16", applications.noops(16), lambda handle: plain(handle, 64, _SECONDS)
    )

    assert 0 == figures["failed"]
    assert figures["calls_per_s"] >= 553


@pytest.mark.parity("S-92")
def test_no_call_through_ten_deployments_five_deep_times_out() -> None:
    """In the guide's run all 6 964 requests did."""
    figures: dict[str, Any] = measure(
        "maze_10x1", applications.maze(1), lambda handle: maze(handle, _SECONDS)
    )

    assert 0 == figures["failed"]
    assert figures["calls"] >= 100


@pytest.mark.parity("S-93")
def test_an_ensemble_of_ten_is_faster_than_the_guides() -> None:
    """8.75 calls a second, 126 ms on average, on one machine of 32 processors."""
    figures: dict[str, Any] = measure("ensemble_10", applications.ensemble(), ensemble)

    assert (80, 0) == (figures["calls"], figures["failed"])
    assert figures["calls_per_s"] > 8.75
    assert figures["mean_ms"] < 126
