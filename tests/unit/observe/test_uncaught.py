"""What nothing catches is one record, in JSON too."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
import threading
import warnings
from typing import Any

import pytest

from pyserve.observe.uncaught import log_uncaught

_PROGRAM = """
import threading
import warnings
import weakref

from pyserve.replica.process import prepare_process


class Tidying:
    def __call__(self, reference):
        raise LookupError("left")

    def __repr__(self):
        raise RuntimeError("cannot be shown")


def fail(error):
    raise error


prepare_process()
for number in range(3):
    thread = threading.Thread(target=fail, args=(ValueError(f"number {number}"),), name="feed")
    thread.start()
    thread.join()
silent = threading.Thread(target=fail, args=(SystemExit(3),))
silent.start()
silent.join()
kept = {1}
warnings.warn("it is old", stacklevel=1)
reference = weakref.ref(kept, Tidying())
del kept
fail(OSError("the last one"))
"""


def _written(encoding: str) -> list[str]:
    environment = {**os.environ, "PYSERVE_LOG_ENCODING": encoding}
    ended = subprocess.run(
        [sys.executable, "-c", _PROGRAM],
        check=False,
        capture_output=True,
        env=environment,
        text=True,
        timeout=60,
    )
    assert 1 == ended.returncode
    return ended.stderr.splitlines()


def test_each_is_an_object_with_its_traceback() -> None:
    found: list[dict[str, Any]] = [json.loads(line) for line in _written("JSON")]

    first, second, third, warned, left, last = found
    assert "uncaught ValueError in thread 'feed'" == first["message"]
    for each, text in ((first, "number 0"), (left, "left"), (last, "the last one")):
        assert each["exc_text"].startswith("Traceback (most recent call last):\n")
        assert each["exc_text"].endswith(f"Error: {text}")
        assert ("ERROR", "replica") == (each["levelname"], each["component"])
    # The same place again: a line, as for calls that fail.
    for each, text in ((second, "number 1"), (third, "number 2")):
        assert "exc_text" not in each
        assert f"{text} (its traceback is in the minute before)" in each["message"]
    # Python's own words, which differ from release to release.
    assert left["message"].startswith("Exception ignored ")
    assert left["message"].endswith(": <a Tidying>")
    assert ("WARNING", "py.warnings") == (warned["levelname"], warned["name"])
    assert "UserWarning: it is old" in warned["message"]
    assert "uncaught OSError" == last["message"]


def test_in_text_further_lines_are_indented() -> None:
    lines = _written("TEXT")

    assert [line for line in lines if line[0] != " "] == [
        line for line in lines if line.startswith(("E ", "W "))
    ]
    assert "  OSError: the last one" == lines[-1]


def test_hooks_of_others_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    hooks = [lambda *_: None for _ in range(3)]
    monkeypatch.setattr(sys, "excepthook", hooks[0])
    monkeypatch.setattr(threading, "excepthook", hooks[1])
    monkeypatch.setattr(sys, "unraisablehook", hooks[2])

    with warnings.catch_warnings():
        log_uncaught()
        logging.captureWarnings(False)

    assert hooks == [sys.excepthook, threading.excepthook, sys.unraisablehook]
