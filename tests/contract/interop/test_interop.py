"""Every case, for every client, against every server: the ids of the tests are the table."""

from __future__ import annotations

import dataclasses
from collections.abc import Awaitable, Callable

import pytest

from tests.contract.interop.calls import Client
from tests.contract.interop.cases import CASES
from tests.contract.interop.compression import COMPRESSION_CASES, Case
from tests.contract.interop.soak import Report, Soak, channel_soak, rpc_soak
from tests.contract.interop.wire import WireLog, watched

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
async def test_the_case_holds(case: Callable[[Client], Awaitable[None]], client: Client):
    await case(client)


@pytest.mark.parametrize("case", COMPRESSION_CASES, ids=lambda case: case.__name__)
async def test_the_case_holds_on_the_wire(case: Case, client: Client, wire_log: WireLog):
    async with watched(client.address, wire_log) as wire:
        await case(dataclasses.replace(client, address=wire.address), wire)


@pytest.mark.parametrize(
    ("case", "soak"),
    [
        pytest.param(rpc_soak, Soak(iterations=200, tasks=4), id="rpc_soak"),
        pytest.param(channel_soak, Soak(iterations=50, tasks=2), id="channel_soak"),
    ],
)
async def test_the_case_holds_for_long(
    case: Callable[[Client, Soak], Awaitable[Report]],
    soak: Soak,
    client: Client,
    record_property: Callable[[str, object], None],
):
    report = await case(client, soak)

    for name, share in {"p50": 0.5, "p90": 0.9, "p100": 1.0}.items():
        record_property(f"latency_ms_{name}", round(report.quantile_ms(share), 2))
    assert report.failures[: soak.failures_max] == report.failures
    assert soak.iterations == len(report.latencies_s)
