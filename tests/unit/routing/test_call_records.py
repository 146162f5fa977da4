"""Records of finished calls, and the trace that goes on in replicas: through real sockets."""

from __future__ import annotations

import time

import grpc
import httpx
import pytest

from pyserve import _router, aio
from tests.support.waiting import eventually
from tests.unit.routing.observed import FAIL_PATH, PATH, TARGET, Observed, observed

_TRACE_ID = "0af7651916cd43dd8448eb211c80319c"
_PARENT_ID = "b7ad6b7169203331"
_SAMPLED = f"00-{_TRACE_ID}-{_PARENT_ID}-01"
_UNSAMPLED = f"00-{_TRACE_ID}-{_PARENT_ID}-00"
_DATA_LOSS = 15
_DAY_NS = 24 * 3600 * 10**9


async def _taken(opened: Observed, records: _router.CallRecords) -> list[_router.CallRecord]:
    await eventually(lambda: opened.ingress.in_flight() == 0)
    return records.take(100)


async def test_sampled_call_goes_on_at_the_replica_in_the_span_of_its_attempt() -> None:
    records = _router.CallRecords(slowest=0)
    async with observed(records) as opened:
        await opened.call(metadata=(("traceparent", _SAMPLED), ("x-request-id", "it")))
        (record,) = await _taken(opened, records)

    (attempt,) = record.attempts
    replica_id, span_id, start_ns, head_ns, end_ns, why, outcome = attempt
    (call,) = opened.calls
    assert f"00-{_TRACE_ID}-{span_id.hex()}-01" == call.traceparent
    assert 0.0 < call.elapsed() < 60.0
    assert ("r-1", "first", "ok") == (replica_id, why, outcome)
    assert 0 <= start_ns <= head_ns <= end_ns <= record.duration_ns
    assert (bytes.fromhex(_TRACE_ID), True) == (record.trace_id, record.is_sampled)
    assert bytes.fromhex(_PARENT_ID) == record.parent_id
    assert 8 == len(record.span_id)
    assert span_id != record.span_id
    assert ("sampled", "it", "grpc", PATH) == (
        record.kept_for,
        record.request_id,
        record.door,
        record.method,
    )
    assert TARGET == f"{record.application}/{record.deployment}"
    assert abs(time.time_ns() - record.start_unix_ns) < _DAY_NS
    assert '"chosen":"r-1"' in record.explanation
    none = {"dropped": 0, "waiting": 0, "without_spans": 0}
    assert {"recorded": 1, **none} == records.stats()


async def test_spans_are_taken_once_beside_the_record() -> None:
    records = _router.CallRecords(slowest=0)
    async with observed(records) as opened:
        await opened.call(metadata=(("traceparent", _SAMPLED),))
        await opened.call()
        await eventually(lambda: opened.ingress.in_flight() == 0)
        spans = records.take_spans(100)

    assert [] == records.take_spans(100)
    (record,) = records.take(100)
    assert record.encode_spans() == spans
    assert 2 == len(spans)


async def test_replica_knows_a_call_that_asks_where_it_goes() -> None:
    records = _router.CallRecords(sampling_ratio=None, slowest=0)
    async with observed(records) as opened:
        await opened.call(metadata=(("x-pyserve-explain", "1"),))
        await opened.call(metadata=(("x-pyserve-explain", "0"),))
        (record,) = await _taken(opened, records)
        asked, other = opened.calls

    assert (True, False) == (asked.is_asked, other.is_asked)
    assert "asked" == record.kept_for
    assert '"chosen":"r-1"' in record.explanation


@pytest.mark.parametrize("came", ["", _UNSAMPLED, _SAMPLED.upper()])
async def test_replica_of_a_call_that_is_not_sampled_sees_no_trace(came: str) -> None:
    records = _router.CallRecords(slowest=0)
    metadata = (("traceparent", came),) if came else ()
    async with observed(records) as opened:
        await opened.call(metadata=metadata)
        assert [] == await _taken(opened, records)
        (call,) = opened.calls
        sent = [value for key, value in call.metadata() if key == "traceparent"]

    assert "" == call.traceparent
    assert sent == ([came] if came else [])


async def test_ratio_samples_calls_that_begin_a_trace_until_it_is_taken_away() -> None:
    records = _router.CallRecords(slowest=0)
    async with observed(records) as opened:
        records.set_sampling_ratio(1.0)
        await opened.call()
        records.set_sampling_ratio(None)
        await opened.call(metadata=(("traceparent", _SAMPLED),))
        (record,) = await _taken(opened, records)
        sampled, other = opened.calls

    assert (b"", 16) == (record.parent_id, len(record.trace_id))
    assert record.trace_id.hex() in sampled.traceparent
    assert _SAMPLED == other.traceparent, "it went on as it came"


async def test_failed_call_is_kept_with_the_id_that_its_replica_saw() -> None:
    records = _router.CallRecords(sampling_ratio=None, slowest=0)
    async with observed(records) as opened:
        await opened.call()
        with pytest.raises(grpc.aio.AioRpcError):
            await opened.call(FAIL_PATH)
        (record,) = await _taken(opened, records)

    assert ("failed", _DATA_LOSS) == (record.kept_for, record.code)
    assert 36 == len(record.request_id)
    assert ("", b"", b"") == (record.explanation, record.trace_id, record.span_id)


async def test_calls_get_an_id_at_the_ingress_unless_they_have_one() -> None:
    async with observed() as opened:
        await opened.call()
        await opened.call(metadata=(("request_id", "mine"),))
        named, own = (dict(call.metadata()) for call in opened.calls)

    assert 36 == len(named["x-request-id"])
    assert ("mine", False) == (own["request_id"], "x-request-id" in own)


async def test_all_calls_are_kept_while_somebody_wants_them() -> None:
    records = _router.CallRecords(sampling_ratio=None, slowest=0)
    async with observed(records) as opened, httpx.AsyncClient(timeout=30) as client:
        records.set_keep_all(True)
        await client.get(f"http://{opened.address}/app/tea?count=2")
        await eventually(lambda: opened.ingress.in_flight() == 0)
        records.set_keep_all(False)
        await opened.call()
        (record,) = await _taken(opened, records)

    assert ("all", "http", "GET /app") == (record.kept_for, record.door, record.method)
    assert (202, 0, "replica") == (record.http_status, record.code, record.answered_by)
    assert record.peer.startswith("ipv4:127.0.0.1:")


async def test_call_of_a_handle_is_sampled_exactly_as_its_caller_is() -> None:
    outer = _router.CallRecords(sampling_ratio=None, slowest=0)
    async with observed(outer) as opened:
        records = _router.CallRecords(sampling_ratio=1.0, slowest=0, samples_root=False)
        table = _router.RoutingTable(node="n", zone="", token=b"token", seed=2, records=records)
        table.apply(1, [opened.route])
        async with aio.Channel(_router.Channel(TARGET, table=table)) as channel:
            method = channel.unary_unary(PATH)
            await method(b"", timeout=10.0)
            await method(b"", timeout=10.0, metadata=(("traceparent", _SAMPLED),))
        (record,) = records.take(10)
        unsampled, sampled = opened.calls

    assert ("handle", "sampled", "") == (record.door, record.kept_for, record.peer)
    assert bytes.fromhex(_PARENT_ID) == record.parent_id
    assert "" == unsampled.traceparent
    assert record.attempts[0][1].hex() in sampled.traceparent


@pytest.mark.parametrize("ratio", [-0.1, 1.1, float("nan")])
def test_ratio_is_a_part_of_one(ratio: float) -> None:
    with pytest.raises(ValueError, match="from 0 to 1"):
        _router.CallRecords(sampling_ratio=ratio)
