"""A record is on the terminal once, by whatever handler user code writes it there."""

from __future__ import annotations

import codecs
import contextlib
import io
import logging
import logging.handlers
import os
import queue
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from rich.logging import RichHandler

from pyserve.observe.failures import TracebackFilter, failure_logger
from pyserve.observe.logs.kept import keeping_nothing
from pyserve.observe.logs.sink import log_to_standard_error

OURS = failure_logger("pyserve.test_destinations")
Make = Callable[[contextlib.ExitStack], logging.Handler]


@pytest.fixture
def closing(capfd: pytest.CaptureFixture[str]) -> Iterator[contextlib.ExitStack]:
    """Leave logging as it was; tests set it up in their bodies, where output is captured."""
    del capfd
    for each in OURS.filters:
        assert isinstance(each, TracebackFilter)
        each.forget()
    with keeping_nothing(), contextlib.ExitStack() as stack:
        logging.getLogger().handlers.clear()
        yield stack


class Tee:
    """A stream that writes to another one too, as loggers of training runs have them."""

    def __init__(self, stream: Any) -> None:
        self.stream = stream
        self.copy = io.StringIO()

    def write(self, text: str) -> int:
        self.copy.write(text)
        return int(self.stream.write(text))


class Failing:
    @property
    def stream(self) -> object:
        raise RuntimeError("it has none")


def stream(_: contextlib.ExitStack) -> logging.Handler:
    return logging.StreamHandler(sys.stdout)


def rich(_: contextlib.ExitStack) -> logging.Handler:
    return RichHandler(console=Console(stderr=True, width=200))


def tee(_: contextlib.ExitStack) -> logging.Handler:
    return logging.StreamHandler(Tee(sys.stderr))


def coded(_: contextlib.ExitStack) -> logging.Handler:
    return logging.StreamHandler(codecs.getwriter("utf-8")(sys.stdout.buffer))


def number(closing: contextlib.ExitStack) -> logging.Handler:
    file = open(1, "w", buffering=1, closefd=False)  # noqa: SIM115
    return logging.StreamHandler(closing.enter_context(file))


def copy(closing: contextlib.ExitStack) -> logging.Handler:
    file = os.fdopen(os.dup(2), "w", buffering=1)
    return logging.StreamHandler(closing.enter_context(file))


def queued(closing: contextlib.ExitStack, *behind: logging.Handler) -> logging.Handler:
    """A queue whose records a thread of this process writes."""
    lines: queue.Queue[Any] = queue.Queue()
    listener = logging.handlers.QueueListener(lines, *(behind or [stream(closing)]))
    listener.start()
    closing.callback(listener.stop)
    return logging.handlers.QueueHandler(lines)


def queued_twice(closing: contextlib.ExitStack) -> logging.Handler:
    return queued(closing, queued(closing, rich(closing)))


def in_memory(closing: contextlib.ExitStack) -> logging.Handler:
    return logging.handlers.MemoryHandler(1, target=stream(closing))


SHOWN: list[Make] = [stream, rich, tee, coded, number, copy, queued, queued_twice, in_memory]


def fail(text: str) -> None:
    try:
        raise ValueError(text)
    except ValueError:
        OURS.exception("it raised")


def written(closing: contextlib.ExitStack, capfd: pytest.CaptureFixture[str]) -> str:
    """Return what is on the terminal when all queues are empty."""
    closing.close()
    return "".join(capfd.readouterr())


@contextlib.contextmanager
def handled(handler: logging.Handler, name: str | None) -> Iterator[None]:
    logging.getLogger(name).addHandler(handler)
    try:
        yield
    finally:
        logging.getLogger(name).removeHandler(handler)


@pytest.mark.parametrize("make", SHOWN)
@pytest.mark.parametrize("name", [None, "shop"])
def test_a_record_is_on_the_terminal_once(
    make: Make, name: str | None, closing: contextlib.ExitStack, capfd: Any
) -> None:
    log_to_standard_error()
    with handled(make(closing), name):
        logging.getLogger("shop.till").warning("sold out")
        logging.getLogger("elsewhere").warning("closed")
        fail("ours")
        text = written(closing, capfd)
    assert (1, 1, 1) == tuple(map(text.count, ("sold out", "closed", "ValueError: ours")))
    assert "shop.till: sold out" not in text


@pytest.mark.parametrize("make", SHOWN)
def test_so_it_is_with_a_basic_configuration(
    make: Make, closing: contextlib.ExitStack, capfd: Any
) -> None:
    log_to_standard_error()
    logging.basicConfig(handlers=[make(closing)])
    logging.getLogger("shop").warning("sold out")
    fail("ours")
    text = written(closing, capfd)
    assert (1, 1) == tuple(map(text.count, ("sold out", "ValueError: ours")))


def test_a_file_behind_the_same_queue_gets_what_pyserve_logs(
    closing: contextlib.ExitStack, capfd: Any, tmp_path: Path
) -> None:
    """But not the terminal, where it is already."""
    log_to_standard_error()
    file = logging.FileHandler(tmp_path / "log")
    closing.callback(file.close)
    with handled(queued(closing, stream(closing), file), None):
        logging.getLogger("shop").warning("sold out")
        fail("ours")
        text = written(closing, capfd)
    for each in (text, (tmp_path / "log").read_text()):
        assert (1, 1) == tuple(map(each.count, ("sold out", "ValueError: ours")))


def test_what_goes_elsewhere_is_on_the_terminal_too(
    closing: contextlib.ExitStack, capfd: Any, tmp_path: Path
) -> None:
    log_to_standard_error()
    elsewhere = [
        logging.FileHandler(tmp_path / "log"),
        logging.FileHandler(os.devnull),
        RichHandler(console=Console(file=io.StringIO())),
        queued(closing, logging.StreamHandler(io.StringIO())),
        logging.handlers.QueueHandler(queue.Queue()),  # Another process may take from it.
        logging.handlers.MemoryHandler(1),
        logging.StreamHandler(Failing()),  # type: ignore[call-overload]
    ]
    with contextlib.ExitStack() as stack:
        for handler in elsewhere:
            handler.handleError = lambda _record: None  # type: ignore[method-assign]
            stack.enter_context(handled(handler, None))
            closing.callback(handler.close)
        logging.getLogger("shop").warning("sold out")
        fail("ours")
        text = written(closing, capfd)
    assert (1, 1) == tuple(map(text.count, ("shop: sold out", "ValueError: ours")))
    kept = (tmp_path / "log").read_text()
    assert (1, 1) == tuple(map(kept.count, ("sold out", "ValueError: ours")))


def test_when_a_listener_has_stopped_pyserve_writes_again(
    closing: contextlib.ExitStack, capfd: Any
) -> None:
    log_to_standard_error()
    with handled(queued(closing), None):
        logging.getLogger("shop").warning("sold out")
        closing.pop_all().close()
        logging.getLogger("shop").warning("closed")
    text = "".join(capfd.readouterr())
    assert (1, 1) == tuple(map(text.count, ("sold out", "shop: closed")))
    assert "shop: sold out" not in text
