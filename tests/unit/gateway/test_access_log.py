"""Lines for the calls of an ingress: what they say, where they go, and when they pause."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pyserve.config import LogSettings
from pyserve.gateway import access_log
from pyserve.gateway.access_log import begin_access_log
from pyserve.observe.logs import access
from pyserve.observe.logs.kept import keeping_nothing
from pyserve.observe.logs.sink import LogSink, set_up_logging
from tests.support.waiting import eventually

pytestmark = pytest.mark.parity("G-81")


def call(**changes: Any) -> Any:
    facts: dict[str, Any] = {
        "start_unix_ns": 1_700_000_000_000_000_000,
        "duration_ns": 12_345_678,
        "request_id": "r-1",
        "method": "/shop.Shop/Buy",
        "path": "",
        "code": 0,
        "http_status": 0,
        "attempts": [("Shop#aaaaa", b"", 0, 1, 2, "first", "ok")],
        "trace_id": b"\x4b" * 16,
        "is_sampled": False,
        "peer": "ipv4:192.0.2.7:1234",
        "door": "grpc",
        "answered_by": "replica",
        "reason": "",
        "application": "shop",
        "deployment": "Shop",
    }
    return SimpleNamespace(**{**facts, **changes})


class FakeRecords:
    """Hands calls to its listener, while all of them are kept."""

    def __init__(self) -> None:
        self.callback: Callable[[Sequence[Any]], object] | None = None
        self.keeps_all = False
        self.is_lazy = False
        self.waiting: list[Any] = []

    def listen(
        self, callback: Callable[[Sequence[Any]], object], *, is_lazy: bool
    ) -> Callable[[], None]:
        self.callback, self.is_lazy = callback, is_lazy

        def end() -> None:
            self.callback = None

        return end

    def take_now(self) -> int:
        waiting, self.waiting = self.waiting, []
        if waiting:
            self.hand(*waiting)
        return len(waiting)

    def keep_all(self, is_on: bool) -> None:
        self.keeps_all = is_on

    def hand(self, *calls: Any) -> None:
        assert self.callback is not None
        self.callback(calls)


@pytest.fixture
def root() -> Iterator[logging.Logger]:
    with keeping_nothing():
        yield logging.getLogger()


def written(folder: Path, sink: LogSink) -> list[str]:
    sink.close()
    lines = (folder / "ingress.log").read_text().splitlines()
    return [line for line in lines if "pyserve.access" in line]


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, " pyserve.access [r-1]: /shop.Shop/Buy OK 12.346 ms, by Shop#aaaaa"),
        (
            {"method": "POST /shop", "path": "/shop/tea", "http_status": 503, "attempts": []},
            " pyserve.access [r-1]: POST /shop/tea 503 12.346 ms",
        ),
        (
            {
                "code": 14,
                "attempts": [
                    ("Shop#aaaaa", b"", 0, 1, 2, "first", "failed"),
                    ("Shop#bbbbb", b"", 2, 3, 4, "retry", "failed"),
                ],
            },
            ": /shop.Shop/Buy UNAVAILABLE 12.346 ms, by Shop#bbbbb, attempt 2",
        ),
        (
            {"code": 13, "answered_by": "ingress", "reason": "it has no JSON:\n'x'"},
            "INTERNAL 12.346 ms, by Shop#aaaaa: \"it has no JSON:\\n'x'\"",
        ),
        ({"is_sampled": True}, f" [r-1 trace={'4b' * 16}]: /shop.Shop/Buy OK"),
        ({"request_id": "x\ny"}, " [x%0Ay]: /shop.Shop/Buy OK"),
    ],
)
async def test_a_line_says_how_a_call_went_and_who_answered(
    tmp_path: Path, root: logging.Logger, changes: dict[str, Any], expected: str
) -> None:
    settings = LogSettings(directory=tmp_path)
    sink = set_up_logging("ingress", settings)
    records = FakeRecords()
    log = begin_access_log(records, lambda: 0, settings)
    assert log is not None
    records.hand(call(**changes))
    log.close()
    assert not records.keeps_all
    assert records.callback is None

    (line,) = written(tmp_path, sink)
    assert expected in line
    assert "192.0.2.7" not in line


async def test_clients_are_named_where_that_is_wanted(tmp_path: Path, root: logging.Logger) -> None:
    settings = LogSettings(directory=tmp_path, client_addresses=True)
    sink = set_up_logging("ingress", settings)
    records = FakeRecords()
    begin_access_log(records, lambda: 0, settings)
    records.hand(call())
    (line,) = written(tmp_path, sink)
    assert line.endswith(", from ipv4:192.0.2.7:1234")


async def test_programs_read_who_was_called_and_how(tmp_path: Path, root: logging.Logger) -> None:
    """As in the line of a replica, which is not there where the ingress has one."""
    settings = LogSettings(directory=tmp_path, encoding="JSON")
    sink = set_up_logging("ingress", settings)
    records = FakeRecords()
    begin_access_log(records, lambda: 0, settings)
    records.hand(call(method="GET /shop", path="/shop/tea", http_status=200, door="http"))
    (line,) = written(tmp_path, sink)
    found = json.loads(line)
    expected = {
        "route": "GET /shop/tea",
        "status": "200",
        "application": "shop",
        "deployment": "Shop",
        "replica": "Shop#aaaaa",
        "door": "http",
        "answered_by": "replica",
        "component": "ingress",
    }
    assert expected == {name: found[name] for name in expected}


@pytest.mark.parametrize(("asked", "shown"), [(True, True), (None, False)])
async def test_the_terminal_has_lines_only_if_they_were_asked_for(
    tmp_path: Path,
    root: logging.Logger,
    capsys: pytest.CaptureFixture[str],
    asked: bool | None,
    shown: bool,
) -> None:
    settings = LogSettings(directory=tmp_path, access_log=asked)
    sink = set_up_logging("ingress", settings)
    records = FakeRecords()
    begin_access_log(records, lambda: 0, settings)
    records.hand(call())
    assert 1 == len(written(tmp_path, sink))
    assert shown == ("/shop.Shop/Buy" in capsys.readouterr().err)


@pytest.mark.parametrize(
    "settings",
    [
        LogSettings(),
        LogSettings(directory=Path("/x"), access_log=False),
        LogSettings(access_log=True, level="WARNING"),
    ],
    ids=["nowhere to go", "not wanted", "below the level"],
)
async def test_without_a_wish_or_a_place_nothing_is_kept(
    root: logging.Logger, settings: LogSettings
) -> None:
    root.setLevel(settings.level)
    records = FakeRecords()
    assert begin_access_log(records, lambda: 0, settings) is None
    assert records.callback is None
    assert not records.keeps_all


async def test_many_calls_pause_it_and_few_let_it_go_on(
    tmp_path: Path, root: logging.Logger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(access, "SECOND_S", 0.1)
    monkeypatch.setattr(access, "CALLS_PER_S_MAX", 10)
    settings = LogSettings(directory=tmp_path)
    sink = set_up_logging("ingress", settings)
    records, calls = FakeRecords(), 0
    log = begin_access_log(records, lambda: calls, settings)
    assert log is not None
    records.hand(*[call()] * 25)  # Too many at once: some have lines.
    await eventually(lambda: not records.keeps_all)
    records.hand(call(is_sampled=True))  # It is kept for its spans.
    calls = 500
    await asyncio.sleep(0)
    await eventually(lambda: records.keeps_all)
    log.close()
    assert 10 == len([line for line in written(tmp_path, sink) if "Buy" in line])
    assert "left about 500 calls out" in (tmp_path / "ingress.log").read_text()


async def test_calls_are_taken_in_time_and_the_last_ones_at_the_end(
    tmp_path: Path, root: logging.Logger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(access_log, "_PERIOD_S", 0.02)
    settings = LogSettings(directory=tmp_path)
    sink = set_up_logging("ingress", settings)
    records = FakeRecords()
    log = begin_access_log(records, lambda: 0, settings)
    assert log is not None
    assert records.is_lazy
    for _ in range(2):
        records.waiting.append(call())
        await eventually(lambda: not records.waiting)
    records.waiting.append(call())
    log.close()
    assert 3 == len(written(tmp_path, sink))
