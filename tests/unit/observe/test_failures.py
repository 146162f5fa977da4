"""The same traceback once a minute, with a count; what differs in its lines is told apart."""

import importlib
import itertools
import json
import logging
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from pyserve.config import check_address
from pyserve.observe.failures import (
    TracebackFilter,
    as_answer,
    exc_info_of,
    failure_logger,
    user_code_logger,
)
from pyserve.observe.log_rate_limit import SILENCE_S, SUBJECTS_MAX, Allowance
from pyserve.observe.logs.formats import JsonFormatter, TextFormatter

_NAMES = itertools.count()


class Log:
    """A logger of failures, and the time that the test moves."""

    def __init__(self, lines_at_once: int = 0) -> None:
        self.now = 0.0
        lines = Allowance(lines_at_once, 1.0, self._clock) if lines_at_once else None
        self.logger = failure_logger(f"test.failures.{next(_NAMES)}", self._clock, lines)

    def _clock(self) -> float:
        return self.now

    def fail(self, step: Callable[[], object], level: int = logging.ERROR) -> None:
        try:
            step()
        except BaseException as error:
            self.logger.log(level, "unexpected %s", type(error).__name__, exc_info=error)


@pytest.fixture
def log(caplog: pytest.LogCaptureFixture) -> Log:
    caplog.set_level(logging.DEBUG)
    return Log()


def look_up(key: str) -> object:
    return dict[str, object]()[key]


def recurse(depth: int) -> object:
    return recurse(depth - 1) if depth else look_up("")


def test_the_message_tells_no_two_failures_apart(log: Log, caplog) -> None:
    """A client may choose it."""
    times = [0.0] * 1000 + [SILENCE_S]
    for number, log.now in enumerate(times):
        log.fail(lambda: look_up(f"no such model: {number}"))  # noqa: B023  # called at once
    told = "unexpected KeyError (and 999 times before, left out here)"
    assert ["unexpected KeyError", told] == caplog.messages
    assert caplog.records[1].exc_info is not None


def test_what_is_not_written_whole_has_a_line_of_its_own(caplog) -> None:
    log = Log(lines_at_once=3)
    for number in range(3):
        log.fail(lambda: look_up(f"tea\n{number}"))  # noqa: B023  # called at once
    further = "unexpected KeyError: 'tea\\n{}' (its traceback is in the minute before)"
    assert ["unexpected KeyError", *map(further.format, (1, 2))] == caplog.messages
    assert [True, False, False] == [record.exc_info is not None for record in caplog.records]


def test_clients_cannot_fill_the_log_with_lines(caplog) -> None:
    """Neither by their number nor by their texts."""
    log = Log(lines_at_once=3)
    for log.now in [0.0] * 1000 + [1.0]:
        log.fail(lambda: look_up("long " * 10_000))
        log.logger.error("no answer to %s", "/path" * 10_000)

    assert 2 + 3 + 1 == len(caplog.messages)
    assert all(len(each) < 512 for each in caplog.messages[2:])
    assert caplog.messages[-1].endswith(" (failures without a line: 1995)")


@pytest.mark.parametrize("character", ["x", "\x1b", "\n", "\u6f22", "\U0001f600", "\udcff"])
def test_no_character_makes_such_a_line_long(character: str, caplog) -> None:
    """In bytes, as the formatter writes them."""
    log = Log(lines_at_once=1)
    for _ in range(2):
        log.fail(lambda: look_up(character * 100_000))
    assert len(TextFormatter().format(caplog.records[1]).encode()) < 512


def test_an_answer_that_is_an_exception_has_a_line_without_a_traceback(caplog) -> None:
    log = Log(lines_at_once=5)

    def answered() -> None:
        raise as_answer(ValueError("an empty word"))

    for _ in range(2):
        log.fail(answered)
    line = "ValueError: an empty word (returned for an item of a batch)"
    assert [line, line] == caplog.messages
    assert {logging.WARNING} == {record.levelno for record in caplog.records}
    assert {None} == {record.exc_info for record in caplog.records}


@pytest.mark.parametrize("formatter", [TextFormatter(), JsonFormatter({})], ids=["text", "json"])
@pytest.mark.parametrize("made_by", [failure_logger, user_code_logger])
def test_a_traceback_begins_in_user_code_and_has_no_frame_of_this_package(
    formatter: logging.Formatter, made_by: Callable[[str], logging.Logger], caplog
) -> None:
    def handler() -> None:
        check_address("--address", "nowhere")

    with ThreadPoolExecutor() as pool:
        error = pool.submit(handler).exception()
    made_by(f"test.failures.{next(_NAMES)}").error("unexpected", exc_info=error)
    written = formatter.format(caplog.records[0])
    text = json.loads(written)["exc_text"] if written.startswith("{") else written
    files = {line.split('"')[1] for line in text.splitlines() if line.lstrip().startswith("File ")}
    assert {__file__} == files


def test_an_exception_that_cannot_be_read_is_written_all_the_same(caplog) -> None:
    class HostileError(SyntaxError):
        @property
        def filename(self) -> str:  # type: ignore[override]
            raise LookupError

    log = Log()

    def fail() -> None:
        raise HostileError

    log.fail(fail)
    assert ["unexpected HostileError"] == caplog.messages
    trace = str(caplog.records[0].exc_text)
    assert "in fail\n    raise HostileError" in trace
    assert trace.endswith("HostileError: None")


def test_an_exception_that_is_false_is_written_with_its_traceback(log: Log, caplog) -> None:
    class EmptyError(Exception):
        def __len__(self) -> int:
            return 0

    log.logger.error("said", exc_info=exc_info_of(EmptyError("alone")))
    assert "EmptyError: alone" in str(caplog.records[0].exc_text)


@pytest.mark.parametrize("name", ["__cause__", "__bool__", "__str__"])
def test_an_exception_whose_attributes_raise_is_written(log: Log, caplog, name: str) -> None:
    def refuse(self: object) -> object:
        raise LookupError

    raising = property(refuse) if name == "__cause__" else refuse
    kind = type("HostileError", (Exception,), {name: raising})
    log.logger.error("said", exc_info=exc_info_of(kind("text")))
    assert ["said"] == caplog.messages
    assert "HostileError: " in str(caplog.records[0].exc_text)


def test_lines_types_and_causes_tell_failures_apart(log: Log, caplog) -> None:
    def translated() -> None:
        try:
            look_up("x")
        except KeyError as error:
            raise LookupError("x") from error

    def grouped() -> None:
        raise BaseExceptionGroup("both", [KeyError(), ValueError()])

    def elsewhere() -> object:
        return look_up("x")

    steps = [lambda: look_up("x"), translated, grouped, elsewhere]

    for step in steps * 3:
        log.fail(step)
    assert len(steps) == len(caplog.records)


def test_a_recursion_of_any_depth_is_one_place(log: Log, caplog) -> None:
    for depth in range(60, 200):
        log.fail(lambda: recurse(depth))  # noqa: B023  # called at once
    assert 1 == len(caplog.records)


def test_what_somebody_has_asked_for_is_written_each_time(log: Log, caplog) -> None:
    for _ in range(3):
        log.fail(lambda: look_up("x"), logging.DEBUG)
        log.logger.info("no traceback")
    assert 6 == len(caplog.records)


def test_failures_without_a_traceback_are_told_apart_by_what_clients_cannot_choose(
    log: Log, caplog
) -> None:
    times = [0.0] * 1000 + [SILENCE_S]
    for number, log.now in enumerate(times):
        log.logger.error("no answer to %s", f"/path/{number}")
    told = "no answer to /path/1000 (and 999 times before, left out here)"
    assert ["no answer to /path/0", told] == caplog.messages


def test_formats_lines_and_loggers_tell_failures_without_a_traceback_apart(
    log: Log, caplog
) -> None:
    def helper(text: str, logger: logging.Logger) -> None:
        logger.error(text, "/path")

    other = Log()
    for _ in range(3):
        helper("no answer to %s", log.logger)
        helper("a wrong answer to %s", log.logger)
        helper("no answer to %s", other.logger)
        log.logger.error("no answer to %s", "/path")
    assert 4 == len(caplog.records)


def test_what_a_message_has_of_a_format_is_written_as_it_came(log: Log, caplog) -> None:
    for log.now in (0.0, 1.0, SILENCE_S):
        log.logger.error("no answer to %s", "/%600000000s%20")
    assert "no answer to /%600000000s%20 (and once before, left out here)" == caplog.messages[1]


def test_many_places_share_what_room_is_left(log: Log, caplog) -> None:
    """As code that is made for each request has them; log and memory are bounded."""
    for number in range(3 * SUBJECTS_MAX):
        namespace: dict[str, Callable[[], object]] = {}
        exec(compile("def step(): 1 / 0", f"generated-{number}", "exec"), namespace)
        log.fail(namespace["step"])
    assert SUBJECTS_MAX + 1 == len(caplog.records)


def test_a_finalizer_may_log_while_a_record_is_looked_at(caplog) -> None:
    numbers = itertools.count()

    def clock() -> float:
        if next(numbers) == 0:
            logger.warning("of a finalizer")
        return 0.0

    logger = failure_logger(f"test.failures.{next(_NAMES)}", clock)
    thread = threading.Thread(target=logger.warning, args=("of a call",), daemon=True)
    thread.start()
    thread.join(30.0)

    assert ["of a finalizer", "of a call"] == caplog.messages


def test_a_cycle_of_causes_ends(log: Log, caplog) -> None:
    def in_circles() -> None:
        first, second = KeyError(), ValueError()
        first.__cause__, second.__cause__ = second, first
        raise first

    log.fail(in_circles)
    assert 1 == len(caplog.records)


@pytest.mark.parametrize(
    "module",
    [
        "pyserve.aio._streams",
        "pyserve.aio._http_tasks",
        "pyserve.aio._outcome",
        "pyserve.batching.runs",
        "pyserve.multiplexing.unloading",
        "pyserve.observe.uncaught",
        "pyserve.replica.asgi.http",
        "pyserve.replica.asgi.websocket",
        "pyserve.replica.exits",
        "pyserve.replica.http.answers",
        "pyserve.replica.inference",
        "pyserve.replica.plain.calls",
    ],
)
def test_what_calls_make_user_code_do_is_written_rarely(module: str) -> None:
    importlib.import_module(module)
    assert any(isinstance(each, TracebackFilter) for each in logging.getLogger(module).filters)


@pytest.mark.parametrize(
    "module",
    [
        "pyserve.control.controller",
        "pyserve.control.server.keeper",
        "pyserve.gateway.ingress",
        "pyserve.routing.watcher",
        "pyserve.replica.asgi.application",
        "pyserve.replica.hooks",
        "pyserve.replica.membership",
        "pyserve.replica.process",
        "pyserve.replica.worker",
        "pyserve.folders",
    ],
)
def test_what_a_mesh_does_by_itself_is_written_each_time(module: str) -> None:
    importlib.import_module(module)
    assert not any(isinstance(each, TracebackFilter) for each in logging.getLogger(module).filters)
