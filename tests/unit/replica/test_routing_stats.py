"""A replica's reports to policies of the user, and the cost of a method that fails."""

import asyncio
import functools
import json
import logging
import math
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from pyserve.config import RequestRouterConfig
from pyserve.replica.hooks import FACTS_BYTES_MAX, HookFailed, StatsReporter, facts_json
from pyserve.replica.loading import LoadError, metadata_json
from tests.support.waiting import eventually

OFTEN = RequestRouterConfig(request_routing_stats_period_s=0.001)
IMPATIENT = RequestRouterConfig(
    request_routing_stats_period_s=0.001, request_routing_stats_timeout_s=0.02
)
ROOM = FACTS_BYTES_MAX - len('{"text":""}')


class Reports:
    """Collects what a reporter says, and waits for it."""

    def __init__(self) -> None:
        self.queue: asyncio.Queue[str] = asyncio.Queue()

    async def __call__(self, stats_json: str) -> None:
        await self.queue.put(stats_json)

    async def next(self) -> str:
        return await asyncio.wait_for(self.queue.get(), 10)


def subject(hook: Any) -> object:
    return type("Subject", (), {"record_routing_stats": staticmethod(hook)})()


def nested() -> dict[str, object]:
    inner: dict[str, object] = {}
    for _ in range(100_000):
        inner = {"inner": inner}
    return inner


def plain() -> dict[str, int]:
    return {"load": 3}


async def coroutine() -> dict[str, int]:
    return {"load": 3}


def indirect() -> object:
    return coroutine()


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"load": 3, "keys": (1, None)}, '{"load":3,"keys":[1,null]}'),
        ({"name": "Zoë"}, '{"name":"Zo\\u00eb"}'),
        ({"text": "x" * ROOM}, '{"text":"' + "x" * ROOM + '"}'),
        ({}, ""),
    ],
)
def test_facts_travel_as_json(value: object, text: str):
    assert text == facts_json(value)


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (None, "it returned NoneType instead of a dict"),
        ([1], "it returned list instead of a dict"),
        ({"lock": threading.Lock()}, "JSON cannot hold: Object of type lock"),
        ({"load": math.nan}, "JSON cannot hold: Out of range"),
        ({(1, 2): 3}, "JSON cannot hold: keys must be"),
        (nested(), "JSON cannot hold: "),
        ({"text": "x" * (ROOM + 1)}, "it returned 16385 bytes of JSON; at most 16384 travel"),
    ],
)
def test_what_cannot_travel_is_refused_with_the_reason(value: object, reason: str):
    with pytest.raises(ValueError, match=reason):
        facts_json(value)


@pytest.mark.parametrize("hook", [plain, coroutine, indirect, functools.partial(plain)])
@pytest.mark.parity("G-76")
async def test_every_kind_of_method_is_asked(hook: Any) -> None:
    reports = Reports()
    async with StatsReporter(subject(hook), OFTEN, reports):
        assert '{"load":3}' == await reports.next()


async def test_only_what_has_changed_is_reported() -> None:
    answers = [{"load": 1}, {"load": 1}, {}, {}, {"load": 1}]
    asked: Iterator[dict[str, int]] = iter(answers)
    done = asyncio.Event()
    reports = Reports()

    async def record() -> dict[str, int]:
        if (found := next(asked, None)) is None:
            done.set()
        return answers[-1] if found is None else found

    async with StatsReporter(subject(record), OFTEN, reports):
        await asyncio.wait_for(done.wait(), 10)
    assert ['{"load":1}', "", '{"load":1}'] == [reports.queue.get_nowait() for _ in range(3)]
    assert reports.queue.empty()


async def give_up() -> None:
    raise asyncio.CancelledError


def leave() -> None:
    raise SystemExit(3)


async def leave_async() -> None:
    raise SystemExit(3)


def stop() -> None:
    raise StopIteration


def fail() -> None:
    raise LookupError("no engine")


async def fail_async() -> None:
    raise LookupError("no engine")


def talk() -> str:
    return "fine"


@pytest.mark.parametrize(
    ("hook", "reason"),
    [
        (fail, "raised LookupError: no engine"),
        (fail_async, "raised LookupError: no engine"),
        (talk, "cannot be used: it returned str instead of a dict"),
        (leave, "raised SystemExit: 3"),
        (leave_async, "raised SystemExit: 3"),
        (stop, "raised StopIteration"),
        (give_up, "raised CancelledError"),
    ],
)
@pytest.mark.parity("G-76")
async def test_a_failure_costs_one_line_a_minute_and_the_last_stats_stay(
    hook: Any, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    count = 0
    reports = Reports()

    def record() -> object:
        nonlocal count
        count += 1
        return {"load": count} if count in {1, 5} else hook()

    with caplog.at_level(logging.WARNING):
        async with StatsReporter(subject(record), OFTEN, reports):
            assert ['{"load":1}', '{"load":5}'] == [await reports.next() for _ in range(2)]

    [record_of_log] = caplog.records
    assert f"record_routing_stats {reason}; routers keep" in record_of_log.getMessage()


async def test_a_coroutine_that_cancels_itself_is_asked_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    answers = iter([give_up, coroutine])
    reports = Reports()

    async def record() -> object:
        return await next(answers, coroutine)()

    with caplog.at_level(logging.WARNING):
        async with StatsReporter(subject(record), OFTEN, reports):
            assert '{"load":3}' == await reports.next()
    assert "record_routing_stats was cancelled" in caplog.text


async def test_a_coroutine_that_hangs_is_cancelled_and_asked_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    ends: list[str] = []
    reports = Reports()

    async def record() -> dict[str, int]:
        if ends:
            return {"load": 1}
        try:
            await asyncio.Event().wait()
        finally:
            ends.append("cancelled")
        raise AssertionError

    with caplog.at_level(logging.WARNING):
        async with StatsReporter(subject(record), IMPATIENT, reports):
            assert '{"load":1}' == await reports.next()
    assert "took longer than 0.02 s" in caplog.text


async def test_a_plain_method_that_hangs_keeps_one_thread_until_it_ends() -> None:
    entered: list[threading.Thread] = []
    released = threading.Event()
    periods = 0
    reports = Reports()

    def record() -> dict[str, int]:
        entered.append(threading.current_thread())
        released.wait()
        return {"calls": len(entered)}

    class Counted(StatsReporter):
        def _complain(self, error: HookFailed) -> None:
            nonlocal periods
            periods += 1
            super()._complain(error)

    try:
        async with Counted(subject(record), IMPATIENT, reports):
            await eventually(lambda: periods >= 5)
            assert 1 == len(entered)
            released.set()
            # A result that came too late is not used; the method is called again.
            assert json.loads(await reports.next())["calls"] > 1
        assert entered[0].daemon
    finally:
        released.set()


async def test_leaving_ends_a_coroutine_that_is_asked() -> None:
    entered, left = asyncio.Event(), asyncio.Event()

    async def record() -> None:
        entered.set()
        try:
            await asyncio.Event().wait()
        finally:
            left.set()

    async with StatsReporter(subject(record), OFTEN, Reports()):
        await asyncio.wait_for(entered.wait(), 10)
    await asyncio.wait_for(left.wait(), 10)


async def test_a_class_without_the_method_has_no_task() -> None:
    before = asyncio.all_tasks()
    async with StatsReporter(object(), OFTEN, Reports()):
        assert before == asyncio.all_tasks()


def with_metadata(hook: Any) -> object:
    return type("Subject", (), {"record_replica_metadata": staticmethod(hook)})()


@pytest.mark.parity("G-76")
async def test_metadata_comes_from_either_kind_of_method() -> None:
    assert '{"load":3}' == await metadata_json(with_metadata(plain))
    assert '{"load":3}' == await metadata_json(with_metadata(coroutine))
    assert "" == await metadata_json(object())


@pytest.mark.parametrize(
    ("hook", "reason"),
    [
        (fail, r"LookupError: no engine \(at .*test_routing_stats.py:\d+\)"),
        (fail_async, "LookupError: no engine"),
        (talk, "ValueError: it returned str instead of a dict$"),
    ],
)
async def test_bad_metadata_ends_the_replica_with_the_method_and_the_reason(
    hook: Any, reason: str
) -> None:
    where = rf"Subject.record_replica_metadata \(.*test_routing_stats.py:\d+\) failed: {reason}"
    with pytest.raises(LoadError, match=where) as caught:
        await metadata_json(with_metadata(hook))
    assert caught.value.user_code
