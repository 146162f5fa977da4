"""The tasks of a replica's process besides its worker."""

import asyncio
import os
import signal
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pyserve.config import read_settings
from pyserve.config.control import OUTPUT_FILE_BYTES_MAX
from pyserve.replica.exits import run_to_end
from pyserve.replica.process import _loop_factory, _StopSignal, _token, empty_if_large


def test_an_output_file_is_emptied_beyond_its_bound_and_goes_on(tmp_path):
    path = tmp_path / "output-1.log"
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND)
    try:
        os.ftruncate(descriptor, OUTPUT_FILE_BYTES_MAX)
        empty_if_large(descriptor)
        assert OUTPUT_FILE_BYTES_MAX == path.stat().st_size
        os.write(descriptor, b"one more")
        empty_if_large(descriptor)
        os.write(descriptor, b"next")
        assert b"next" == path.read_bytes()
    finally:
        os.close(descriptor)


def test_what_is_no_file_is_left_alone():
    reader, writer = os.pipe()
    try:
        empty_if_large(writer)
    finally:
        os.close(reader)
        os.close(writer)


def test_the_token_comes_from_a_descriptor_or_else_from_the_file_that_a_variable_names(tmp_path):
    read: list[tuple[Path, str]] = []

    def read_token(path: Path, variable: str) -> bytes:
        read.append((path, variable))
        return b"of the file"

    named = read_settings({"PYSERVE_TOKEN_FILE": str(tmp_path / "token")})
    reader, writer = os.pipe()
    os.write(writer, b"of the pipe")
    os.close(writer)

    assert b"of the pipe" == _token(reader, named, read_token)
    assert [] == read
    assert b"of the file" == _token(None, named, read_token)
    assert [(tmp_path / "token", "PYSERVE_TOKEN_FILE")] == read
    assert b"" == _token(None, read_settings({}), read_token)


def test_a_signal_that_comes_after_the_loops_end_does_not_fail_the_process():
    worker: Any = SimpleNamespace(is_constructing=False, request_stop=lambda _grace_s: None)
    loop = asyncio.new_event_loop()
    on_signal = _StopSignal(loop, worker)
    loop.close()
    for _ in range(2):
        on_signal(signal.SIGTERM, None)


async def _leave(error: BaseException) -> int:
    raise error


@pytest.mark.parametrize("loop_factory", [None, _loop_factory()], ids=["asyncio", "installed"])
@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt()], ids=repr)
def test_a_task_that_exits_does_not_end_the_replica(loop_factory, error, caplog):
    async def main() -> int:
        for _ in range(2):
            await asyncio.wait([asyncio.create_task(_leave(error))])
        # What fails later is not said to have come from it.
        assert sys.exception() is None
        return 5

    with asyncio.Runner(loop_factory=loop_factory) as runner:
        assert 5 == run_to_end(runner, main())
    assert f"a task raised {type(error).__name__}; the replica goes on" in caplog.text


def test_the_exit_of_the_replica_itself_ends_it():
    with asyncio.Runner() as runner, pytest.raises(SystemExit):
        run_to_end(runner, _leave(SystemExit(3)))
