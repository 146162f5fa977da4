"""A long object of JSON is shortened as an object, and log files have it whole."""

from __future__ import annotations

import io
import json
import sys
import threading

import pytest

from pyserve.config.control import OUTPUT_LINE_BYTES_MAX
from pyserve.config.logs import LogSettings
from pyserve.observe.logs import sink as sinks
from pyserve.observe.logs.formats import LongLine, long_line, with_prefix
from pyserve.observe.logs.sink import LogSink

FIELDS = {"level": "INFO", "event": "prompt", "text": "x" * 40_000, "trace": "t-1", "count": 3}
PRINTED = json.dumps(FIELDS)


def long_lines(printed: str = PRINTED) -> LongLine:
    line = long_line(printed)
    assert line is not None
    return line


def test_short_fields_stay_and_long_ones_say_what_is_cut() -> None:
    line = long_lines()
    found = json.loads(line)
    assert len(line) <= OUTPUT_LINE_BYTES_MAX
    assert "characters cut" in found.pop("text")
    assert {name: value for name, value in FIELDS.items() if name != "text"} == found
    assert PRINTED == line.whole


@pytest.mark.parametrize(
    "fields",
    [
        {"level": "INFO", **{f"field-{each}": "y" * 50 for each in range(2000)}},
        {"level": "INFO", "inner": {"list": [{"text": "z" * 20_000}] * 3}},
        {"level": "INFO", "text": "\U0001f600" * 20_000, "number": float("nan")},
        {"level": "INFO", "k" * 40_000: 1},
    ],
    ids=["many fields", "nested", "wide characters", "a long key"],
)
def test_any_object_is_within_the_bound(fields: dict[str, object]) -> None:
    line = long_lines(json.dumps(fields))
    assert len(line) <= OUTPUT_LINE_BYTES_MAX
    found = json.loads(line, parse_constant=pytest.fail)
    assert isinstance(found, dict)
    assert "k" * 40_000 in fields or "INFO" == found["level"]
    assert "cut" in line


@pytest.mark.parametrize("text", ["{", "{" * 20_000, '{"a": 1} and more', "[1]", '"text"'])
def test_what_is_no_object_is_none(text: str) -> None:
    assert long_line(text) is None


def test_a_prefix_stands_before_the_object() -> None:
    line = with_prefix("[Shop#1] ", long_lines())
    assert isinstance(line, LongLine)
    assert line.startswith('[Shop#1] {"level"')
    assert ("[Shop#1] ", PRINTED) == (line.prefix, line.whole)
    assert "[Shop#1] text" == with_prefix("[Shop#1] ", "text")


@pytest.mark.parametrize(("encoding", "prefix"), [("TEXT", "[Shop#1] "), ("JSON", "")])
def test_a_file_has_it_whole_and_the_terminal_short(capsys, tmp_path, encoding, prefix) -> None:
    sink = LogSink("test", LogSettings(directory=tmp_path, encoding=encoding))
    sink.write_output(with_prefix("[Shop#1] ", long_lines()))
    sink.close()

    assert f"{prefix}{PRINTED}\n" == (tmp_path / "test.log").read_text()
    seen = capsys.readouterr().err
    assert len(seen) < OUTPUT_LINE_BYTES_MAX + len(prefix) + 2
    assert "t-1" == json.loads(seen.removeprefix(prefix))["trace"]


def test_without_a_file_it_is_short(capsys) -> None:
    sink = LogSink("test", LogSettings())
    sink.write_output(with_prefix("[Shop#1] ", long_lines()))
    sink.close()
    assert long_lines() == capsys.readouterr().err.removeprefix("[Shop#1] ").rstrip("\n")


class BlockedStream(io.StringIO):
    """A pipe that nobody reads until the test allows it."""

    def __init__(self) -> None:
        super().__init__()
        self.allowed = threading.Event()

    def write(self, text: str) -> int:
        self.allowed.wait(10)
        return super().write(text)


def test_of_many_that_wait_some_are_short_in_the_file_too(monkeypatch, tmp_path) -> None:
    """So that they stay within the memory for them."""
    monkeypatch.setattr(sinks, "_WHOLE_LINES_MAX", 1)
    stream = BlockedStream()
    monkeypatch.setattr(sys, "stderr", stream)
    sink = LogSink("test", LogSettings(directory=tmp_path))
    for _ in range(3):
        sink.write_output(long_lines())
    stream.allowed.set()
    sink.close(timeout_s=10)

    lines = (tmp_path / "test.log").read_text().splitlines()
    assert [PRINTED, long_lines(), long_lines()] == lines
