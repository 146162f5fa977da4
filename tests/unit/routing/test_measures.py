"""What the native side counts of calls: at the router, at the listener, at the replica."""

from __future__ import annotations

from typing import TYPE_CHECKING

import grpc
import httpx
import pytest

from pyserve import _router
from pyserve.observe.metrics.catalogue import OF_COUNTS
from tests.support.routes import native_route
from tests.support.waiting import eventually
from tests.unit.routing.observed import FAIL_PATH, PATH, TARGET, Observed, observed

if TYPE_CHECKING:
    from pyserve._router import Histogram

_OK, _DATA_LOSS = 0, 15


async def _make_calls(opened: Observed) -> None:
    """Make two good calls, one that fails, and one of plain HTTP; wait until all are counted."""
    for _ in range(2):
        assert b"pingping" == await opened.call()
    with pytest.raises(grpc.aio.AioRpcError):
        await opened.call(FAIL_PATH)
    async with httpx.AsyncClient(timeout=30) as client:
        assert 202 == (await client.get(f"http://{opened.address}/app")).status_code
    await eventually(lambda: opened.ingress.in_flight() == 0)
    await eventually(lambda: opened.server.native.in_flight() == 0)


def _count(histogram: Histogram) -> int:
    assert len(histogram["buckets"]) + 1 == len(histogram["counts"])
    assert histogram["buckets"] == sorted(histogram["buckets"])
    assert histogram["buckets"][0] == pytest.approx(50e-6)
    return sum(histogram["counts"])


async def test_table_counts_calls_by_their_ends_and_times_them() -> None:
    async with observed() as opened:
        await _make_calls(opened)
        measures = opened.table.measures()[TARGET]

    assert {_OK: 2, _DATA_LOSS: 1} == measures["codes"]
    assert {"1xx": 0, "2xx": 1, "3xx": 0, "4xx": 0, "5xx": 0} == measures["http"]
    assert 3 == _count(measures["latency_ok"])
    assert 0.0 < measures["latency_ok"]["sum"] < 30.0
    assert 1 == _count(measures["latency_failed"])
    assert ({"r-1": 4}, {"r-1": 1}) == (measures["sent"], measures["failed"])
    assert {"node": 0, "zone": 4, "any": 0} == measures["sent_by_tier"]
    assert 4 == _count(measures["attempts"]["r-1"])
    assert 0 == _count(measures["parked_wait"])
    assert 0 == sum(measures["refused"].values()) + sum(measures["releases"].values())
    # Each message has a prefix of five bytes; the answers are two of eight and one of five.
    assert (3 * 9, 2 * 13 + 5) == (measures["request_bytes"], measures["response_bytes"])


async def test_ingress_counts_requests_by_protocol_and_class() -> None:
    async with observed() as opened:
        await _make_calls(opened)
        doors = opened.ingress.doors()

    used = {door: counts for door, counts in doors.items() if any(counts.values())}
    assert {"grpc", "http"} == set(used)
    assert (0, 2, 1) == (used["grpc"]["open"], used["grpc"]["2xx"], used["grpc"]["5xx"])
    assert (0, 1) == (used["http"]["open"], used["http"]["2xx"])


async def test_server_counts_calls_by_method() -> None:
    async with observed() as opened:
        await _make_calls(opened)
        measures = opened.server.native.measures()

    assert {PATH, FAIL_PATH, "http"} == set(measures)
    assert {_OK: 2} == measures[PATH]["codes"]
    assert {_DATA_LOSS: 1} == measures[FAIL_PATH]["codes"]
    assert 1 == measures["http"]["http"]["2xx"]
    assert (8, 16) == (measures[PATH]["request_bytes"], measures[PATH]["response_bytes"])
    assert 2 == _count(measures[PATH]["latency"])


def test_every_count_of_a_router_has_its_metric():
    table = _router.RoutingTable(node="n", zone="", token=b"", seed=1)
    table.apply(1, [native_route([], {"app.Echo": None})])
    counted = {name for metric in OF_COUNTS for name in metric.counts}

    # The others are by replica, or count defects of ours.
    others = {"in_flight", "in_flight_total", "descriptor_problems", "stale_tickets"}
    others |= {"stale_waiters"}
    assert counted | others == set(table.stats()["app/Echo"])
