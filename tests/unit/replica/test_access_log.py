"""The access log of a replica pauses above what anybody reads, unless it was asked for."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Any, cast

import pytest

from pyserve.aio import EndedCall, Server
from pyserve.config import LoggingConfig, LogSettings
from pyserve.observe.logs import access
from pyserve.replica.logs import AccessLog, ReplicaLogging, ReplicaLogs
from tests.support.waiting import eventually


class FakeCall:
    path = "/shop.Shop/Buy"
    peer = "ipv4:192.0.2.7:1234"
    traceparent = ""
    trusted = True
    framed = False
    host = "shop.example"

    def metadata(self) -> list[tuple[str, str]]:
        return [("grpc-previous-rpc-attempts", "2"), ("x-request-id", "r-7")]


class FakeServer:
    """Counts calls, and reports their ends to its listener."""

    def __init__(self) -> None:
        self.on_end: Any = None
        self.calls = 0
        self.native = self

    def tell_ends(self, on_end: Any) -> None:
        self.on_end = on_end

    def stats(self) -> dict[str, int]:
        return {"calls": self.calls}

    def call(
        self, path: str = FakeCall.path, code: int = 0, status: int = 0, **facts: object
    ) -> None:
        self.calls += 1
        if self.on_end is not None:
            call = FakeCall()
            call.path = path
            for name, value in facts.items():
                setattr(call, name, value)
            self.on_end(EndedCall(cast("Any", call), "", 1.0, 0.001, code, status, is_http=False))


class Lines:
    def __init__(self) -> None:
        self.records: list[logging.LogRecord] = []
        self.passed_on: list[bool] = []

    def __call__(self, records: Sequence[logging.LogRecord], *, is_passed_on: bool) -> None:
        self.records += records
        self.passed_on += [is_passed_on] * len(records)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> FakeServer:
    monkeypatch.setattr(access, "CALLS_PER_S_MAX", 10)
    monkeypatch.setattr(access, "SECOND_S", 0.1)
    return FakeServer()


def begin(server: FakeServer, **settings: Any) -> tuple[AccessLog, Lines]:
    lines = Lines()
    return AccessLog(cast("Server", server), lines, LogSettings(**settings)), lines


async def test_many_calls_pause_it_and_few_let_it_go_on(
    server: FakeServer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    log, _ = begin(server)
    try:
        for _ in range(11):
            server.call()
        await eventually(lambda: server.on_end is None)
        for _ in range(40):
            server.call()
        await eventually(lambda: server.on_end is not None)
        assert "pauses; PYSERVE_ACCESS_LOG=1" in caplog.text
        assert "left about 40 calls out" in caplog.text
    finally:
        log.close()


async def test_one_that_was_asked_for_has_every_call(server: FakeServer) -> None:
    log, lines = begin(server, access_log=True)
    for _ in range(100):
        server.call()
    await eventually(lambda: len(lines.records) == 100)
    assert server.on_end is not None
    log.close()
    assert server.on_end is None


async def test_what_waits_at_the_end_is_written(server: FakeServer) -> None:
    log, lines = begin(server, access_buffer_size=1000)
    server.call()
    await asyncio.sleep(0)
    assert [] == lines.records
    log.close()
    assert 1 == len(lines.records)


@pytest.mark.parity("G-81")
@pytest.mark.parametrize(("named", "expected"), [(False, False), (True, True)])
async def test_clients_are_named_only_where_that_is_wanted(
    server: FakeServer, named: bool, expected: bool
) -> None:
    log, lines = begin(server, client_addresses=named)
    server.call(code=5)
    log.close()
    (record,) = lines.records
    assert expected == ("192.0.2.7" in record.getMessage())
    found = vars(record)
    assert ("r-7", "NOT_FOUND", 3) == (found["request_id"], found["status"], found["attempts"])


async def test_calls_of_the_mesh_itself_are_no_lines(server: FakeServer) -> None:
    log, lines = begin(server)
    server.call("/pyserve.references/Fetch")
    log.close()
    assert [] == lines.records


async def test_it_knows_which_calls_an_ingress_has_sent(server: FakeServer) -> None:
    """A handle frames its messages, a channel has the mesh for its host, a client no token."""
    log, lines = begin(server, access_buffer_size=1000)
    for facts in ({}, {"framed": True}, {"host": "pyserve.mesh"}, {"trusted": False}, {}):
        server.call(**facts)
    log.close()
    assert [True, False, False, False, True] == lines.passed_on


@pytest.mark.parity("G-81")
@pytest.mark.parametrize("is_launched", [True, False])
async def test_a_call_of_an_ingress_has_its_second_line_in_the_file_alone(
    is_launched: bool,
) -> None:
    """But where nobody reads the ingress beside it, a replica has its own terminal."""
    written: list[tuple[list[str], bool]] = []

    class Logs:
        has_file = True

        def follow(self, config: LoggingConfig) -> None: ...

        def takes_info(self) -> bool:
            return True

        def write(self, records: Sequence[logging.LogRecord], *, everywhere: bool) -> None:
            written.append(([vars(each)["route"] for each in records], everywhere))

        def close(self) -> None: ...

    server = FakeServer()
    logs = ReplicaLogging(
        cast("ReplicaLogs", Logs()),
        LogSettings(access_log=True, access_buffer_size=1000),
        LoggingConfig(),
        is_launched=is_launched,
    )
    logs.watch(cast("Server", server))
    server.call("/a.A/Sent")
    server.call("/a.A/Called", framed=True)
    server.call("/a.A/Sent")
    logs.close()

    sent = (["/a.A/Sent"], not is_launched)
    assert [sent, (["/a.A/Called"], True), sent] == written
