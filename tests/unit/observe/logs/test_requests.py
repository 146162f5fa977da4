"""A record knows the request and the sampled trace of the code that logs it."""

import contextvars
import json
import logging
import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from pyserve.observe.logs.formats import (
    JsonFormatter,
    RequestFilter,
    TextFormatter,
    output_as_json,
    trace_id_of,
)
from pyserve.request import CURRENT, Request
from pyserve.testing import request

LOGGER = logging.getLogger("shop.requests")
TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"


class Lines(logging.Handler):
    """Keeps what it formats."""

    def __init__(self, formatter: logging.Formatter) -> None:
        super().__init__()
        self.setFormatter(formatter)
        self.addFilter(RequestFilter())
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(self.format(record))


@pytest.fixture(params=["TEXT", "JSON"])
def form(request: pytest.FixtureRequest) -> str:
    found: str = request.param
    return found


@pytest.fixture
def lines(form: str) -> Iterator[list[str]]:
    handler = Lines(JsonFormatter({}) if form == "JSON" else TextFormatter())
    LOGGER.addHandler(handler)
    yield handler.lines
    LOGGER.removeHandler(handler)


def id_in(line: str, form: str) -> str:
    if form == "JSON":
        return str(json.loads(line).get("request_id", ""))
    head = line.partition(": ")[0]
    return head.partition("[")[2].removesuffix("]")


def test_a_line_has_the_id_of_its_request_and_none_outside_of_one(
    lines: list[str], form: str
) -> None:
    LOGGER.warning("before")
    with request(request_id="abc"):
        LOGGER.warning("inside")
    LOGGER.warning("after")

    assert ["", "abc", ""] == [id_in(line, form) for line in lines]


def test_a_thread_that_has_the_variables_has_the_id(lines: list[str], form: str) -> None:
    with request(request_id="abc"):
        variables = contextvars.copy_context()
    thread = threading.Thread(target=variables.run, args=(LOGGER.warning, "from a thread"))
    thread.start()
    thread.join()

    assert ["abc"] == [id_in(line, form) for line in lines]


def test_code_may_say_an_id_where_there_is_no_call(lines: list[str], form: str) -> None:
    LOGGER.warning("hello", extra={"request_id": "its own"})

    assert ["its own" if form == "JSON" else "its%20own"] == [id_in(line, form) for line in lines]


@pytest.mark.parametrize("given", ["its own", 7])
def test_an_id_that_code_says_in_a_call_has_another_name(
    given: object, lines: list[str], form: str
) -> None:
    with request(request_id="abc"):
        LOGGER.warning("hello", extra={"request_id": given})

    (line,) = lines
    assert "abc" == id_in(line, form)
    if form == "JSON":
        assert given == json.loads(line)["extra_request_id"]
    else:
        assert line.endswith(f": hello extra_request_id={given}")


def test_a_trace_that_code_says_in_a_traced_call_has_another_name() -> None:
    made = logging.makeLogRecord({"trace_id": "its own"})
    token = CURRENT.set(Call(f"00-{TRACE}-00f067aa0ba902b7-01"))
    RequestFilter().filter(made)
    CURRENT.reset(token)

    assert (TRACE, "its own") == (made.trace_id, made.extra_trace_id)  # type: ignore[attr-defined]


def test_the_id_of_the_call_that_is_said_again_stands_once(lines: list[str], form: str) -> None:
    with request(request_id="abc"):
        LOGGER.warning("hello", extra={"request_id": "abc"})

    (line,) = lines
    assert "abc" == id_in(line, form)
    assert "extra_request_id" not in line


def test_a_record_that_passes_filters_later_keeps_the_id_of_its_call() -> None:
    in_call, outside = logging.makeLogRecord({}), logging.makeLogRecord({})
    RequestFilter().filter(outside)
    with request(request_id="abc"):
        RequestFilter().filter(in_call)
    with request(request_id="later"):
        for made, expected in ((in_call, "abc"), (outside, "")):
            RequestFilter().filter(made)
            assert expected == vars(made)["request_id"]
            assert "extra_request_id" not in vars(made)


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ("a\nE 2026", "a%0AE%202026"),
        ("a]: b", "a%5D:%20b"),
        ("50%", "50%25"),
        ("\x1b[2J", "%1B%5B2J"),
        ("é", "%C3%A9"),
        ("\udcff", "%ED%B3%BF"),
        ("x" * 5000, "x" * 128),
    ],
)
def test_an_id_cannot_end_its_mark_nor_its_line(given: str, shown: str) -> None:
    handler = Lines(TextFormatter())
    LOGGER.addHandler(handler)
    with request(request_id=given):
        LOGGER.warning("hello")
    LOGGER.removeHandler(handler)

    (line,) = handler.lines
    assert line.endswith(f" shop.requests [{shown}]: hello")


class Call:
    """What makes a request of a call with a ``traceparent``."""

    def __init__(self, traceparent: str) -> None:
        self.call = SimpleNamespace(traceparent=traceparent)
        self.made = Request(request_id="abc")

    def request(self) -> Request:
        return self.made

    def model_and_deadline(self) -> tuple[str, float | None]:
        return self.made.model_and_deadline()

    def note_cost(self, cost: float) -> None:
        raise AssertionError("nothing here has a cost")


def test_a_sampled_call_has_its_trace_in_each_line(lines: list[str], form: str) -> None:
    token = CURRENT.set(Call(f"00-{TRACE}-00f067aa0ba902b7-01"))
    LOGGER.warning("traced")
    CURRENT.reset(token)

    (line,) = lines
    if form == "JSON":
        assert (TRACE, "abc") == (json.loads(line)["trace_id"], json.loads(line)["request_id"])
    else:
        assert f" [abc trace={TRACE}]: traced" in line


@pytest.mark.parametrize(
    "traceparent",
    ["", "nonsense", f"00-{'0' * 32}-00f067aa0ba902b7-01", f"00-{TRACE}-00f067aa0ba902b7-00"],
)
def test_without_a_trace_there_is_no_id_of_one(traceparent: str) -> None:
    assert "" == trace_id_of(Call(traceparent))


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("[Echo#1] hello", {"message": "hello", "replica": "Echo#1"}),
        ("pyserve: ready", {"message": "pyserve: ready"}),
        ('[Echo#1] {"a": 1}', {"a": 1}),
        ('[Echo#1] {"a": 1} and more', {"message": '{"a": 1} and more', "replica": "Echo#1"}),
        ("[Echo#1] {", {"message": "{", "replica": "Echo#1"}),
        ("[Echo#1] [1]", {"message": "[1]", "replica": "Echo#1"}),
    ],
)
def test_a_printed_line_becomes_an_object(line: str, expected: dict[str, Any]) -> None:
    found = json.loads(output_as_json(line))
    assert {**found, **expected} == found
