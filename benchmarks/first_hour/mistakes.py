"""The same five mistakes with each system, and what it says of them."""

from __future__ import annotations

import re
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.first_hour.systems import (
    CONSTRUCTOR,
    EMPTY,
    MISSING_FILE,
    MODULE,
    RAISING_CONSTRUCTOR,
    RAISING_LINE,
    WRONG_FIELD,
    WRONG_TYPE,
    System,
)
from benchmarks.first_hour.trial import Answer, Trial, free_port, running

# How long a command may take to notice a mistake; Ray Serve tries constructors three times.
_PATIENCE_S = 45.0
# A message about a port that is taken should contain this, to say how to continue.
_OTHER_PORT = re.compile(
    r"--port|--address|\bport 0\b|(?:another|different|other|free) (?:port|address|one)",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Verdict:
    """What came of one mistake.

    Attributes:
        happened: In a word or two: how the command went on, or with which statuses it answered.
        marks: What a good answer has, by name.
        seconds: Until the command ended by itself; None: it did not, or was not to.
        lines: In the terminal, because of the mistake.
        shown: These lines, and the bodies of answers.
    """

    happened: str
    marks: Mapping[str, bool]
    seconds: float | None
    lines: int
    shown: Sequence[str]


def place_is_shown(shown: Sequence[str], line: int) -> bool:
    """Whether the file of the service is named with this line, in any usual form."""
    # In logs of JSON quotes have a backslash.
    place = re.compile(rf'{MODULE}\.py\\?"?(?:, line |:){line}\b')
    return any(place.search(each) for each in (*shown, _unbroken(shown)))


def other_port_is_offered(shown: Sequence[str]) -> bool:
    """Whether something says how another port is chosen."""
    return any(_OTHER_PORT.search(each) for each in shown)


def word_is_shown(shown: Sequence[str], word: str) -> bool:
    """Whether a word is there by itself, not as a part of another one."""
    whole = re.compile(rf"(?<!\w){re.escape(word)}(?!\w)")
    return any(whole.search(each) for each in shown)


def mistakes_in_commands(system: System, environment: Path) -> dict[str, Verdict]:
    """Make the mistakes that are there before anybody calls."""
    return {
        "port": _taken_port(system, environment),
        "constructor": _raising_constructor(system, environment),
        "option": _misspelt_option(system, environment),
    }


def mistakes_in_calls(trial: Trial) -> dict[str, Verdict]:
    """Make the mistakes of callers, with a service that runs."""
    return {"handler": _raising_handler(trial), "input": _wrong_input(trial)}


def _taken_port(system: System, environment: Path) -> Verdict:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        start = _start(system, environment, system.program, port)
    return start.verdict(
        port=word_is_shown(start.shown, str(port)),
        remedy=other_port_is_offered(start.shown),
    )


def _raising_constructor(system: System, environment: Path) -> Verdict:
    program = system.program.replace(CONSTRUCTOR, RAISING_CONSTRUCTOR)
    start = _start(system, environment, program, free_port())
    return start.verdict(
        cause=all(each in _unbroken(start.shown) for each in ("No such file", MISSING_FILE)),
        place=place_is_shown(start.shown, line_of(RAISING_CONSTRUCTOR, program)),
    )


def _misspelt_option(system: System, environment: Path) -> Verdict:
    right, misspelt = system.option
    program = system.program.replace(right, misspelt)
    start = _start(system, environment, program, free_port())
    return start.verdict(
        name=word_is_shown(start.shown, misspelt.partition("=")[0]),
        place=place_is_shown(start.shown, line_of(misspelt, program)),
        remedy=word_is_shown(start.shown, right.partition("=")[0]),
    )


@dataclass(frozen=True)
class _Start:
    """How a start with a mistake went."""

    happened: str
    fails: bool
    seconds: float | None
    shown: list[str]

    def verdict(self, **marks: bool) -> Verdict:
        marks = {"ends": self.fails, **marks}
        return Verdict(self.happened, marks, self.seconds, len(self.shown), self.shown)


def _start(system: System, environment: Path, program: str, port: int) -> _Start:
    with running(system, environment, program, port=port) as trial:
        # Nobody asks meanwhile, so that the terminal shows the mistake alone.
        trial.pause(_PATIENCE_S)
        seconds = round(trial.elapsed_s(), 2) if trial.ended else None
        trial.wait_until_calm()
        shown = trial.lines()
        code = trial.terminal.process.poll()
        if code is None:
            happened = "serves" if trial.answers() else "stays"
        else:
            happened = f"ends with {code}"
        return _Start(happened, bool(code), seconds, shown)


def _raising_handler(trial: Trial) -> Verdict:
    answer, shown = _asked(trial, EMPTY)
    line = line_of(RAISING_LINE, trial.system.program)
    marks = {
        "status": 500 <= answer.status < 600,
        "cause": any("division by zero" in each for each in shown),
        "place": place_is_shown(shown, line),
        "serves": trial.answers(),
    }
    return Verdict(str(answer.status), marks, None, len(shown), [*shown, answer.body])


def _wrong_input(trial: Trial) -> Verdict:
    of_type, shown = _asked(trial, WRONG_TYPE)
    of_field, shown_then = _asked(trial, WRONG_FIELD)
    marks = {
        "status": 400 <= of_type.status < 500 and 400 <= of_field.status < 500,
        "field": "text" in of_type.body,
        "type": re.search(r"\bstr", of_type.body) is not None,
        "missing": "text" in of_field.body,
        "unknown": "txt" in of_field.body,
    }
    shown = [*shown, *shown_then]
    happened = ", ".join(sorted({str(of_type.status), str(of_field.status)}))
    return Verdict(happened, marks, None, len(shown), [*shown, of_type.body, of_field.body])


def _asked(trial: Trial, body: object) -> tuple[Answer, list[str]]:
    """Ask; return the answer and what the terminal then shows."""
    trial.wait_until_calm()
    before = len(trial.lines())
    answer = trial.ask(body)
    trial.wait_until_calm()
    return answer, trial.lines()[before:]


def _unbroken(shown: Sequence[str]) -> str:
    """Return rows as one text, since a terminal breaks what is longer than a row."""
    return "".join(shown)


def line_of(text: str, program: str) -> int:
    """Return the number of the first line that has a text."""
    return next(n for n, line in enumerate(program.splitlines(), 1) if text in line)
