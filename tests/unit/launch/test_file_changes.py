"""Writes are announced, once for many; without inotify the caller polls."""

import asyncio
import ctypes
import errno

import pytest

from pyserve.launch.output import FileChanges

BOUND_S = 5


@pytest.fixture
async def changes():
    watching = FileChanges()
    assert not watching.is_polling
    yield watching
    watching.close()
    watching.close()


async def test_a_write_ends_the_wait_and_silence_does_not(changes, tmp_path):
    path = tmp_path / "output"
    path.write_text("before")
    changes.add(path)
    await asyncio.wait_for(changes.wait(), BOUND_S)  # What it held already.
    waiting = asyncio.create_task(changes.wait())
    await asyncio.sleep(0)
    assert not waiting.done()
    with path.open("a") as file:
        file.write("more")
    await asyncio.wait_for(waiting, BOUND_S)


async def test_a_change_between_two_waits_is_not_lost(changes, tmp_path):
    first, second = tmp_path / "first", tmp_path / "second"
    for path in (first, second):
        path.touch()
        changes.add(path)
    await asyncio.wait_for(changes.wait(), BOUND_S)
    second.write_text("a line")
    await asyncio.wait_for(changes.wait(), BOUND_S)


async def test_without_inotify_the_caller_polls(monkeypatch, tmp_path):
    class Refusing:
        def __init__(self, name, use_errno):
            assert name is None
            assert use_errno

        def inotify_init1(self, flags):
            ctypes.set_errno(errno.EMFILE)
            return -1

    monkeypatch.setattr(ctypes, "CDLL", Refusing)
    watching = FileChanges()
    watching.add(tmp_path / "output")
    assert watching.is_polling
    for _ in range(3):
        await asyncio.wait_for(watching.wait(), BOUND_S)
    watching.close()


async def test_a_file_that_cannot_be_watched_is_polled(changes, tmp_path):
    changes.add(tmp_path / "missing")
    assert changes.is_polling
    await asyncio.wait_for(changes.wait(), BOUND_S)
