"""Lines of the access log wait for company, an error, a second or the end, and are bounded."""

import asyncio
import logging
import threading
from collections.abc import Sequence

import pytest

from pyserve.observe.logs import access
from pyserve.observe.logs.access import AccessBuffer, FlushOnError, access_record
from pyserve.observe.logs.formats import TextFormatter

pytestmark = pytest.mark.parity("S-57")
TIMEOUT_S = 30


class Written:
    """The lines that were written, in groups, and an event for tests that wait for more."""

    def __init__(self) -> None:
        self.groups: list[list[int]] = []
        self._came = asyncio.Event()

    def __call__(self, entries: Sequence[int]) -> None:
        self.groups.append(list(entries))
        self._came.set()

    @property
    def all(self) -> list[int]:
        return [entry for group in self.groups for entry in group]

    async def wait(self, count: int) -> None:
        async with asyncio.timeout(TIMEOUT_S):
            while len(self.all) < count:
                self._came.clear()
                await self._came.wait()


def make(size: int) -> tuple[AccessBuffer[int], Written]:
    written = Written()
    return AccessBuffer(written, size, asyncio.get_running_loop()), written


async def turns(count: int = 5) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def test_a_buffer_of_one_writes_each_entry_through() -> None:
    buffer, written = make(1)
    for entry in range(3):
        buffer.add(entry)
        await turns()
        assert [[each] for each in range(entry + 1)] == written.groups


async def test_a_buffer_is_written_when_it_is_full_and_not_before() -> None:
    buffer, written = make(4)
    for entry in range(3):
        buffer.add(entry)
    await turns()
    assert [] == written.groups

    buffer.add(3)
    await turns()
    assert [[0, 1, 2, 3]] == written.groups


async def test_what_fills_no_buffer_is_written_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(access, "FLUSH_S", 0.05)
    buffer, written = make(1000)
    for begin in (0, 2):
        buffer.add(begin)
        buffer.add(begin + 1)
        await written.wait(begin + 2)
    assert [[0, 1], [2, 3]] == written.groups


async def test_a_record_of_an_error_has_what_waits_written_before_it() -> None:
    buffer, written = make(1000)
    logger = logging.getLogger("shop.access")
    handler = FlushOnError(buffer.flush)
    logger.addHandler(handler)
    try:
        buffer.add(1)
        logger.warning("no error")
        assert [] == written.groups
        logger.error("an error")
        assert [[1]] == written.groups
    finally:
        logger.removeHandler(handler)


async def test_at_the_end_everything_is_written() -> None:
    buffer, written = make(1000)
    for entry in range(5):
        buffer.add(entry)
    buffer.flush()
    assert [0, 1, 2, 3, 4] == written.all
    await turns()
    assert 5 == len(written.all)


async def test_entries_of_threads_are_written_once_each() -> None:
    buffer, written = make(10)

    def add_all(first: int) -> None:
        for entry in range(first, first + 500):
            buffer.add(entry)

    threads = [threading.Thread(target=add_all, args=(500 * number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        await asyncio.to_thread(thread.join)
    await turns()
    buffer.flush()
    assert list(range(2000)) == sorted(written.all)


async def test_a_full_buffer_is_written_in_several_turns_of_the_loop() -> None:
    buffer, written = make(500)
    for entry in range(500):
        buffer.add(entry)
    await written.wait(500)
    assert max(map(len, written.groups)) < 100
    assert list(range(500)) == written.all


async def test_what_nobody_writes_down_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(access, "_WAITING_MAX", 100)
    buffer, written = make(10)
    for entry in range(1000):
        buffer.add(entry)
    await written.wait(100)
    assert list(range(900, 1000)) == written.all


@pytest.mark.parity("G-81")
def test_a_line_has_what_was_asked_how_it_ended_and_how_long_it_took() -> None:
    record = access_record(
        ended_at=1_700_000_000.25,
        request_id="r-1",
        label="/shop.Shop/Buy",
        status="OK",
        duration_s=0.0123456,
        attempts=2,
    )
    line = TextFormatter().format(record)
    assert line.startswith("I ")
    assert ",250 " in line
    assert line.endswith(" pyserve.access [r-1]: /shop.Shop/Buy OK 12.346 ms, attempt 2")


def test_a_path_cannot_begin_a_line_nor_fill_a_file() -> None:
    text = "GET /\nE 2026 forged" + "x" * 10_000
    record = access_record(ended_at=0, request_id="", label=text, status="200", duration_s=0.001)
    line = TextFormatter().format(record)
    assert len(line) < 400
    assert "\nE" not in line
