"""A process answers scrapes, whatever its loops do, and nobody else's scrapes suffer from one."""

import asyncio
import contextlib
import os
import resource
import socket
import threading
from pathlib import Path

import pytest

from pyserve.admin.gathering import Gathered, gather
from pyserve.loop_thread import LoopThread
from pyserve.observe.metrics import ProcessMetrics, Scrape, ScrapePoint, answering, on_loop
from pyserve.observe.metrics.answering import mark_of
from tests.support.removing import remove_at_once
from tests.support.waiting import eventually

TOKEN = b"a token"


async def ask(folder: Path, timeout_s: float = 30.0) -> Gathered:
    return await gather([folder], mark_of(TOKEN), timeout_s)


def value(found: Gathered, name: str) -> float:
    (sample,) = [
        sample
        for families in found.families
        for family in families
        if family.name == name
        for sample in family.samples
    ]
    return sample.value


@pytest.fixture
def metrics() -> ProcessMetrics:
    return ProcessMetrics("replica", {"replica": "A#1"})


async def test_what_sources_say_arrives_with_the_labels_of_the_process(tmp_path, metrics):
    metrics.add(lambda scrape: scrape.add("pyserve_ingress_calls_total", 7))
    point = ScrapePoint(metrics, tmp_path, TOKEN)
    try:
        found = await ask(tmp_path)
        assert 0o600 == point.path.stat().st_mode & 0o777
    finally:
        point.close()

    assert (1, 0) == (found.answered, found.silent)
    families = {each.name: each for (part,) in [found.families] for each in part}
    (sample,) = families["pyserve_ingress_calls"].samples
    assert ("_total", {"replica": "A#1"}, 7.0) == (sample.suffix, sample.labels, sample.value)
    (memory,) = families["pyserve_process_resident_memory_bytes"].samples
    assert memory.value > 1 << 20
    assert {"role": "replica", "pid": str(os.getpid()), "replica": "A#1"} == memory.labels
    assert [] == list(tmp_path.iterdir())


async def test_a_source_that_fails_costs_its_own_lines_and_is_counted(tmp_path, metrics, caplog):
    def broken(scrape: Scrape) -> None:
        raise RuntimeError("no")

    metrics.add(broken)
    metrics.add(lambda scrape: scrape.add("pyserve_ingress_calls_total", 7))
    point = ScrapePoint(metrics, tmp_path, TOKEN)
    try:
        found = await ask(tmp_path)
    finally:
        point.close()

    assert 7 == value(found, "pyserve_ingress_calls")
    assert 1 == value(found, "pyserve_scrape_sources_failed")
    assert "incomplete" in caplog.text


async def test_a_process_is_answered_for_while_its_loop_stands_still(tmp_path, metrics):
    """Only what has to run in that loop is missing."""
    stalled, go_on = threading.Event(), threading.Event()

    def stall() -> None:
        stalled.set()
        assert go_on.wait(30)

    thread = LoopThread("stalled", waits_for_threads=False)
    metrics.add(on_loop(thread.loop, lambda scrape: scrape.add("pyserve_ingress_calls_total", 7)))
    point = ScrapePoint(metrics, tmp_path, TOKEN)
    try:
        assert 7 == value(await ask(tmp_path), "pyserve_ingress_calls")
        thread.loop.call_soon_threadsafe(stall)
        assert await asyncio.to_thread(stalled.wait, 30)
        found = await ask(tmp_path)
    finally:
        go_on.set()
        thread.close()
        point.close()

    assert 1 == value(found, "pyserve_scrape_sources_failed")
    assert value(found, "pyserve_process_threads") >= 1


async def test_who_does_not_answer_is_counted_and_holds_nobody_up(tmp_path, metrics):
    point = ScrapePoint(metrics, tmp_path, TOKEN)
    with socket.socket(socket.AF_UNIX) as mute:
        mute.bind(str(tmp_path / "metrics-mute.sock"))
        mute.listen()
        try:
            found = await ask(tmp_path, timeout_s=2.0)
        finally:
            point.close()
    assert (1, 1) == (found.answered, found.silent)


@pytest.mark.parametrize("said", [b"", b"nonsense", b"{}", b'{"mesh": "", "families": [1]}'])
async def test_what_cannot_be_read_is_counted_as_silence(tmp_path, said):
    async def answer(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(said)
        writer.close()

    server = await asyncio.start_unix_server(answer, tmp_path / "metrics-odd.sock")
    async with server:
        found = await ask(tmp_path)
    assert (0, 1, []) == (found.answered, found.silent, found.families)


async def test_processes_of_another_mesh_are_none_of_this_one(tmp_path, metrics):
    point = ScrapePoint(metrics, tmp_path, b"another token")
    try:
        found = await ask(tmp_path)
    finally:
        point.close()
    assert (0, 0) == (found.answered, found.silent)


async def test_sockets_of_the_dead_are_removed_after_a_while(tmp_path):
    for name in ("old", "new"):
        with socket.socket(socket.AF_UNIX) as left:
            left.bind(str(tmp_path / f"metrics-{name}.sock"))
    os.utime(tmp_path / "metrics-old.sock", (0, 0))

    found = await ask(tmp_path)

    assert (0, 0) == (found.answered, found.silent)
    assert ["metrics-new.sock"] == [each.name for each in tmp_path.iterdir()]


async def test_a_socket_that_was_removed_is_made_anew(tmp_path, metrics):
    """As is one whose folder was, once somebody has made that again."""
    folder = tmp_path / "run"
    folder.mkdir()
    point = ScrapePoint(metrics, folder, TOKEN, look_period_s=0.02)

    async def is_answered() -> bool:
        return 1 == (await ask(folder)).answered

    try:
        point.path.unlink()
        await eventually(is_answered)
        assert 0o600 == point.path.stat().st_mode & 0o777

        remove_at_once(folder)
        # Its attempts fail in the meantime, and end nothing.
        await asyncio.sleep(0.1)
        folder.mkdir()
        await eventually(is_answered)
    finally:
        point.close()
    assert [] == list(folder.iterdir())


async def test_a_process_without_a_descriptor_left_answers_again_when_it_has_one(
    tmp_path, metrics, monkeypatch
):
    monkeypatch.setattr(answering, "_AGAIN_S", 0.01)
    point = ScrapePoint(metrics, tmp_path, TOKEN)
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        with socket.socket(socket.AF_UNIX) as asking:
            with socket.socket() as last:
                resource.setrlimit(resource.RLIMIT_NOFILE, (last.fileno() + 1, limits[1]))
            with contextlib.ExitStack() as others:
                with contextlib.suppress(OSError):
                    while True:
                        others.enter_context(socket.socket())
                asking.connect(str(point.path))
                # So long that it has tried.
                await asyncio.sleep(0.1)
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        assert 1 == (await ask(tmp_path)).answered
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        point.close()
