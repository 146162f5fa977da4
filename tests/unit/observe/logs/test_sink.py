"""Log records and replica output reach standard error and files, and never block a loop."""

import io
import logging
import os
import signal
import sys
import threading

import pytest

from pyserve.config.logs import LogSettings, Rotation
from pyserve.observe.logs.kept import keeping_nothing
from pyserve.observe.logs.sink import LogSink, _File, log_to_standard_error, set_up_logging


@pytest.fixture
def root_logger():
    with keeping_nothing():
        yield logging.getLogger()


def test_lines_come_out_in_order(capsys):
    sink = LogSink("test", LogSettings())
    for number in range(100):
        sink.write(f"line {number}")
    sink.close()

    assert [f"line {number}" for number in range(100)] == capsys.readouterr().err.splitlines()


def test_file_has_everything_and_standard_error_what_matters(capsys, tmp_path, root_logger):
    sink = set_up_logging("controller", LogSettings(directory=tmp_path / "logs"))
    logging.getLogger("x").info("a detail")
    logging.getLogger("x").warning("a warning")
    sink.write("[Echo#1] output")
    sink.close()

    file = (tmp_path / "logs" / "controller.log").read_text()
    assert ["a detail", "a warning", "output"] == [
        word for word in ("a detail", "a warning", "output") if word in file
    ]
    seen = capsys.readouterr().err
    assert "a detail" not in seen
    assert "a warning" in seen
    assert "[Echo#1] output\n" in seen


class BlockedStream(io.StringIO):
    """A pipe that nobody reads until the test allows it."""

    def __init__(self):
        super().__init__()
        self.allowed = threading.Event()

    def write(self, text):
        self.allowed.wait(10)
        return super().write(text)


def test_reader_that_stalls_costs_lines_and_no_time(monkeypatch):
    stream = BlockedStream()
    monkeypatch.setattr(sys, "stderr", stream)
    sink = LogSink("test", LogSettings())

    for number in range(20_000):
        sink.write(f"line {number}")
    stream.allowed.set()
    sink.close(timeout_s=10)

    lines = stream.getvalue().splitlines()
    told = [int(line.split()[1]) for line in lines if "were dropped" in line]
    # Once more where the thread that writes was late to come to its first line.
    assert 1 <= len(told) <= 2
    assert 20_000 == len(lines) - len(told) + sum(told)


class BrokenStream(io.StringIO):
    def write(self, text):
        raise BrokenPipeError


def test_reader_that_is_gone_is_no_error(monkeypatch, tmp_path):
    monkeypatch.setattr(sys, "stderr", BrokenStream())
    sink = LogSink("test", LogSettings(directory=tmp_path))
    sink.write("one")
    sink.write("two")
    sink.close()
    sink.close()

    assert "one\ntwo\n" == (tmp_path / "test.log").read_text()


def test_a_screen_gets_lines_and_what_is_passing(capsys, tmp_path):
    reader, writer = os.pipe()
    sink = LogSink("test", LogSettings(directory=tmp_path), writer)
    sink.write_output("[Echo#1] 10%\r")
    sink.write_output("[Echo#1] 100%")
    sink.close()

    with os.fdopen(reader, "rb") as file:
        assert b"[Echo#1] 10%\r[Echo#1] 100%\n" == file.read()
    assert "" == capsys.readouterr().err
    assert "[Echo#1] 100%\n" == (tmp_path / "test.log").read_text()


def test_when_the_screen_has_gone_lines_go_to_standard_error(capsys):
    reader, writer = os.pipe()
    sink = LogSink("test", LogSettings(), writer)
    os.close(reader)
    sink.write_output("[Echo#1] 10%\r")
    sink.write_output("[Echo#1] 100%")
    sink.close()

    assert "[Echo#1] 100%\n" == capsys.readouterr().err


def test_file_on_a_full_disk_is_told_once_and_lines_go_on(capsys, tmp_path):
    path = tmp_path / "test.log"
    path.symlink_to("/dev/full")
    sink = LogSink("test", LogSettings(directory=tmp_path))
    for number in range(3):
        sink.write(f"line {number}")
    sink.close()

    *lines, told = sorted(capsys.readouterr().err.splitlines())
    assert [f"line {number}" for number in range(3)] == lines
    assert f"the log file {path} cannot be written: [Errno 28] No space left on device;" in told


FORGED = "E 2026-01-01 00:00:00,000 pyserve.control: all is lost"


@pytest.fixture(params=["controller", "replica"])
def written(request, capsys, root_logger):
    """Return what a process of each kind writes of what a function logs."""

    def of(log, text):
        root_logger.handlers[:] = []
        if request.param == "controller":
            sink = set_up_logging("controller", LogSettings())
            log(text)
            sink.close()
        else:
            log_to_standard_error()
            log(text)
        return capsys.readouterr().err

    return of


def fail_as_the_client_says(text):
    try:
        raise ValueError(text)
    except ValueError:
        logging.getLogger("x").exception("it raised")


@pytest.mark.parametrize("end", ["\n", "\r", "\r\n", "\v", "\f", "\x1c", "\x85", "\u2028", "\n\n"])
@pytest.mark.parametrize("log", [logging.getLogger("x").warning, fail_as_the_client_says])
def test_no_line_that_a_client_chooses_begins_like_a_record(log, end, written):
    # As the strictest reader splits them.
    lines = written(log, f"/path{end}{FORGED}").splitlines()
    assert 1 == sum(line[:2] in {"W ", "E "} for line in lines)
    assert any(FORGED in line for line in lines)


@pytest.mark.parametrize("log", [logging.getLogger("x").warning, fail_as_the_client_says])
@pytest.mark.parametrize(
    ("sent", "expected"),
    [
        ("\x1b[2J", "\\x1b[2J"),
        ("\x9b2J", "\\x9b2J"),
        ("\x00\x08\x7f", "\\x00\\x08\\x7f"),
        ("a\rb", "a\\rb"),
        ("\u202e", "\\u202e"),
        ("\udc80", "\\udc80"),
        ("tab\there, é, 日本", "tab\there, é, 日本"),
    ],
)
def test_control_characters_are_written_as_in_source(log, sent, expected, written):
    assert f"<{expected}>\n" in written(log, f"<{sent}>")


def test_a_traceback_is_whole_and_its_lines_are_indented(written):
    first, *rest = written(fail_as_the_client_says, "one\ntwo").splitlines()
    assert first.endswith(" x: it raised")
    assert ["  Traceback (most recent call last):", "  ValueError: one", "  two"] == [
        rest[0],
        *rest[-2:],
    ]


def test_a_file_has_what_no_encoding_has(tmp_path, root_logger):
    """Halves of surrogates, which a client may send where bytes become text."""
    sink = set_up_logging("test", LogSettings(directory=tmp_path))
    logging.getLogger("x").warning("/\udcff")
    sink.close()

    assert "/\\udcff\n" in (tmp_path / "test.log").read_text()


def test_a_child_that_was_forked_while_others_log_can_log(tmp_path):
    """It has a copy of the file's own lock, which another thread may have held."""
    handler = _File(tmp_path / "log", Rotation(file_bytes_max=1 << 20, files_kept=1), print)
    record = logging.makeLogRecord({"msg": "x" * 2000})
    ended = threading.Event()

    def chat():
        while not ended.is_set():
            handler.handle(record)

    threads = [threading.Thread(target=chat) for _ in range(4)]
    for each in threads:
        each.start()
    try:
        statuses = {_status_of_a_child(lambda: handler.handle(record)) for _ in range(40)}
    finally:
        ended.set()
        for each in threads:
            each.join()
        handler.close()
    assert {0} == statuses


def _status_of_a_child(work):
    pid = os.fork()
    if not pid:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(5)
        work()
        os._exit(0)
    return os.waitpid(pid, 0)[1]
