"""What user code raises while pyserve writes a record stops neither the writer nor others."""

from __future__ import annotations

import io
import logging
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from pyserve.observe.failures import failure_logger
from pyserve.observe.log_rate_limit import LogRateLimit
from pyserve.observe.logs import kept
from pyserve.observe.logs.kept import keeping_nothing
from pyserve.observe.logs.sink import log_to_standard_error

USUAL_FACTORY = logging.getLogRecordFactory()


class Broken(logging.Handler):
    def __init__(self, error: BaseException) -> None:
        super().__init__()
        self._error = error

    def emit(self, record: logging.LogRecord) -> None:
        raise self._error


class Recursive(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        logging.getLogger("shop").error("about %s", record.name)


def refuse(*_: object, **__: object) -> Any:
    raise RuntimeError("refused")


def by_handler() -> None:
    logging.getLogger().addHandler(Broken(RuntimeError("refused")))


def by_handler_that_exits() -> None:
    logging.getLogger("pyserve").addHandler(Broken(SystemExit(1)))


def by_handler_that_logs() -> None:
    logging.getLogger().handlers[:] = [Recursive()]


def by_filter() -> None:
    handler = logging.NullHandler()
    logging.getLogger().addHandler(handler)
    handler.handle = refuse  # type: ignore[method-assign]


def by_filter_of_the_logger() -> None:
    logging.getLogger("pyserve.test_guarded").addFilter(refuse)


def by_factory() -> None:
    logging.setLogRecordFactory(refuse)


def by_factory_of_nothing() -> None:
    logging.setLogRecordFactory(lambda *_, **__: None)  # type: ignore[arg-type, return-value]


WAYS = [
    by_handler,
    by_handler_that_exits,
    by_handler_that_logs,
    by_filter,
    by_filter_of_the_logger,
    by_factory,
    by_factory_of_nothing,
]


@pytest.fixture(autouse=True)
def usual_logging(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(kept, "_complaints", LogRateLimit())
    before = logging.getLogger("pyserve").handlers[:]
    with keeping_nothing():
        logging.getLogger().handlers.clear()
        yield
    logging.setLogRecordFactory(USUAL_FACTORY)
    logging.getLogger("pyserve").handlers[:] = before
    logging.getLogger("pyserve.test_guarded").filters.clear()


@pytest.mark.parametrize("spoil", WAYS)
def test_a_record_is_written_and_its_writer_goes_on(
    spoil: Callable[[], None], capsys: pytest.CaptureFixture[str]
) -> None:
    log_to_standard_error()
    logger = failure_logger("pyserve.test_guarded", lines=None)
    collected = io.StringIO()
    spoil()
    logging.getLogger("pyserve").addHandler(logging.StreamHandler(collected))
    try:
        raise ValueError("needle")
    except ValueError:
        logger.exception("it raised")
    text = capsys.readouterr().err
    assert 1 == text.count("ValueError: needle") == collected.getvalue().count("ValueError: needle")
    assert text.count("raised RuntimeError: refused") <= 1


@pytest.mark.parametrize("spoil", WAYS)
def test_a_process_that_is_no_part_of_a_mesh_goes_on_too(spoil: Callable[[], None]) -> None:
    spoil()
    collected = io.StringIO()
    logger = failure_logger("pyserve.test_guarded", lines=None)
    logger.addHandler(logging.StreamHandler(collected))
    try:
        logger.error("needle")
    finally:
        logger.handlers.clear()
    assert collected.getvalue() == "needle\n"
    assert logging.getLogger("test_guarded.of_users").__class__ is logging.Logger


_PROGRAM = """
import logging, os, sys
from pyserve.observe.logs.sink import log_to_standard_error
log_to_standard_error()
{}
logging.getLogger("pyserve.test").error("needle")
"""


@pytest.mark.parametrize(
    "end",
    ["sys.stderr.close()", "os.close(2)", "os.dup2(os.open('/dev/full', os.O_WRONLY), 2)"],
)
def test_lines_are_written_whatever_becomes_of_standard_error(end: str) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", _PROGRAM.format(end)],
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert 1 == ended.stderr.count("pyserve.test: needle")


def test_a_fork_that_closes_standard_error_keeps_no_reader_waiting() -> None:
    """As daemons do: who reads would wait for the end of a process that writes nothing more."""
    reader, writer = os.pipe()
    program = _PROGRAM.format(
        "if os.fork() == 0:\n  os.close(2)\n  os.close(1)\n  os.read(0, 1)\n  os._exit(0)"
    )
    try:
        ended = subprocess.run(
            [sys.executable, "-c", program],
            check=False,
            stdin=reader,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            timeout=60,
            pass_fds=(reader,),
        )
    finally:
        os.close(writer)
        os.close(reader)
    assert 1 == ended.stderr.count("needle")
