"""The comparison of first hours: what it counts, what it takes for an answer, how it is shown."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks.first_hour import systems, tables
from benchmarks.first_hour.environments import Lines, count_lines
from benchmarks.first_hour.mistakes import (
    mistakes_in_calls,
    mistakes_in_commands,
    other_port_is_offered,
    place_is_shown,
    word_is_shown,
)
from benchmarks.first_hour.systems import (
    CONSTRUCTOR,
    LABEL,
    PROGRAMS,
    RAISING_LINE,
    SYSTEMS,
    System,
)
from benchmarks.first_hour.tables import Row, first_in, not_first, render, with_tables
from benchmarks.first_hour.trial import free_port, request, running
from benchmarks.first_hour.visits import external_references

ENVIRONMENT = Path(sys.prefix)

SERVICE = """\
import json
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer


class Sentiment:
    def __init__(self, limit):
        self.good = {"good", "great"}

    def score(self, text):
        words = text.split()
        score = len(self.good.intersection(words)) / len(words)
        return {"label": "positive" if score else "negative", "score": score}


class Handler(BaseHTTPRequestHandler):
    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        wrong = not isinstance(body.get("text"), str)
        try:
            answer = {"detail": f"text is no str in {body}"} if wrong else sentiment.score(**body)
        except ZeroDivisionError:
            self.send_error(500)
            raise
        self.send_response(422 if wrong else 200)
        self.end_headers()
        self.wfile.write(json.dumps(answer).encode())


sentiment = Sentiment(limit=16)
server = HTTPServer(("127.0.0.1", int(sys.argv[1])), Handler)
print(f"\\033[1mserving at {server.server_port}\\033[0m", flush=True)
server.serve_forever()
"""


@pytest.mark.parametrize(
    ("program", "lines"),
    [
        ("", Lines(0, 0)),
        ("import json\n\n# Why.\nx = 1\n", Lines(1, 2)),
        (
            "from json import (\n    dumps,\n    loads,\n)\n\n\ndef f():\n    return 1  # So.\n",
            Lines(2, 6),
        ),
        ("if x:\n    import json\n", Lines(1, 2)),
    ],
)
def test_lines_are_neither_empty_nor_comments(program: str, lines: Lines):
    assert lines == count_lines(program)


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ('  File "/tmp/fh-x/service/sentiment.py", line 12, in __init__', True),
        ("│ /tmp/fh-x/service/sentiment.py:12 in <module>  │", True),
        ('{"message": "File \\"/tmp/sentiment.py\\", line 12, in f ZeroDivisionError"}', True),
        ('  File "/tmp/fh-x/service/sentiment.py", line 120, in f', False),
        ('  File "/tmp/fh-x/other.py", line 12, in f', False),
    ],
)
def test_a_place_is_the_file_with_the_line(line: str, shown: bool):
    assert shown == place_is_shown(["Traceback", line], 12)


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("127.0.0.1:80 is in use. Please change to a free one (use `--port`).", True),
        ("choose another port, or stop the process", True),
        ("[Errno 98] address already in use", False),
        ("error while binding port 8000", False),
    ],
)
def test_another_port_is_offered_by_saying_how(line: str, offered: bool):
    assert offered == other_port_is_offered([line])


def test_a_word_is_no_part_of_another():
    assert word_is_shown(["write max_ongoing_requests, please"], "max_ongoing_requests")
    assert not word_is_shown(["unexpected 'max_ongoing_requests_'"], "max_ongoing_requests")


def test_a_page_loads_from_elsewhere_what_has_another_host():
    html = """
        <html><script src="/own.js"></script><link href="//cdn.example/style.css">
        <a href="https://example.org">more</a><script src="https://cdn.example/x.js"></script>
    """
    assert ["//cdn.example/style.css", "https://cdn.example/x.js"] == external_references(html)


# --- the services ---------------------------------------------------------------------------


@pytest.mark.parametrize("system", SYSTEMS, ids=lambda system: system.name)
def test_a_service_has_once_what_is_replaced_in_it(system: System):
    for text in (CONSTRUCTOR, RAISING_LINE, LABEL, system.option[0]):
        assert 1 == system.program.count(text), text
    assert system.option[1] not in system.program
    assert not system.port[0] or 1 == system.program.count(system.port[0])
    assert not system.caller or 1 == system.caller.count("# mistake\n")


def test_every_program_belongs_to_a_system():
    names = {file.stem.partition("_")[0] for file in PROGRAMS.glob("*.py")}
    assert {system.name for system in SYSTEMS} == names


@pytest.fixture
def system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> System:
    (tmp_path / "stdlib_service.py").write_text(SERVICE)
    monkeypatch.setattr(systems, "PROGRAMS", tmp_path)
    monkeypatch.setattr("benchmarks.first_hour.mistakes._PATIENCE_S", 2.0)
    start = ("python", "sentiment.py", "{port}")
    return System("stdlib", "stdlib", "", start, option=("limit=16", "limti=16"))


@pytest.mark.slow
def test_a_service_is_started_asked_misused_and_stopped(system: System):
    with running(system, ENVIRONMENT, system.program, port=free_port()) as trial:
        assert trial.wait(trial.answers)
        assert trial.wait(lambda: bool(trial.lines()))
        assert f"serving at {trial.port}" == trial.lines()[0]
        verdicts = mistakes_in_calls(trial)
    assert 0 == request(f"http://127.0.0.1:{trial.port}/").status
    assert ("500", True) == (verdicts["handler"].happened, all(verdicts["handler"].marks.values()))
    assert ("422", True) == (verdicts["input"].happened, all(verdicts["input"].marks.values()))


@pytest.mark.slow
def test_mistakes_are_made_and_what_is_said_of_them_is_kept(system: System):
    found = mistakes_in_commands(system, ENVIRONMENT)
    assert {
        "port": ("ends with 1", {"ends": True, "port": False, "remedy": False}),
        "constructor": ("ends with 1", {"ends": True, "cause": True, "place": True}),
        # Python 3.11 to 3.13 do not say what an argument is called.
        "option": ("ends with 1", {"ends": True, "name": True, "place": True, "remedy": False}),
    } == {name: (each.happened, each.marks) for name, each in found.items()}
    assert all(each.seconds is not None and each.lines for each in found.values())


# --- the tables -----------------------------------------------------------------------------


def spread(median: float, around: float = 0.1) -> dict[str, float]:
    low, high = median - around, median + around
    return {
        "median": median,
        "lower_quartile": low,
        "upper_quartile": high,
        "least": low,
        "most": high,
    }


def found(**changed: Any) -> dict[str, Any]:
    """Return what is found of a system, here of one that does all as it should."""
    marks = {name: dict.fromkeys(meanings, True) for name, (_, meanings) in MARKS.items()}
    mistakes: dict[str, Any] = {
        name: {"happened": "422", "marks": each, "seconds": None, "lines": 1, "shown": []}
        for name, each in marks.items()
    }
    return {
        "version": "1.0",
        "lines": {"without_imports": 9, "all": 10},
        "packages": 3,
        "bytes": 5_400_000,
        "first_answer_s": spread(0.5),
        "terminal": {"shown": ["serving"], "address": True, "shown_then": []},
        "page": {"place": "http://127.0.0.1:80/#/try?a=b", "shown": True, "external": []},
        "reload": {"seconds": spread(1.0), "gap_s": spread(0.2)},
        "mistakes": mistakes,
        "types": {"argument": True, "option": True, "has_caller": True, "false_errors": []},
        **changed,
    }


MARKS = tables._MISTAKES


def test_the_best_of_a_row_is_bold_and_what_cannot_be_told_apart_is_equal():
    systems = {
        "pyserve": found(first_answer_s=spread(0.65)),
        "mosec": found(bytes=2_000_000),
        "fastapi": found(first_answer_s=spread(2.0), reload=None),
    }
    rows = render(systems).splitlines()
    assert "| | pyserve | mosec | FastAPI |" == rows[0]
    assert "| their size, MB | 5 | **2** | 5 |" in rows
    times = "**0.65 (0.55 to 0.75)** | **0.50 (0.40 to 0.60)** | 2.00 (1.90 to 2.10)"
    assert f"| seconds to the first answer | {times} |" in rows
    assert any(row.endswith(" | no reload |") and row.count("**") == 4 for row in rows)
    assert ["their size, MB"] == not_first("pyserve", systems)


def test_a_row_of_a_mistake_says_what_is_missing():
    quiet = found()
    quiet["mistakes"]["port"] = {
        "happened": "ends with 1",
        "marks": {"ends": True, "port": True, "remedy": False},
        "seconds": 0.44,
        "lines": 12,
        "shown": [],
    }
    row = next(line for line in render({"mosec": quiet}).splitlines() if "port is taken" in line)
    cell = "2 of 3; not: it says how to choose another (ends with 1 after 0.4 s, 12 lines)"
    assert row.endswith(f"| **{cell}** |")


def test_who_cannot_be_installed_has_a_line_and_no_column():
    text = render({"pyserve": found(), "ray": {"unavailable": "cannot be installed: no wheel"}})
    assert "| | pyserve |\n" in text
    assert text.endswith("\nRay Serve: cannot be installed: no wheel\n")


def test_a_row_without_better_and_worse_has_nobody_first():
    assert [] == first_in(Row("version", str), {"pyserve": found()})


def test_tables_stand_between_their_marks():
    page = "# A\n\n<!-- first hour: begin -->\nold\n<!-- first hour: end -->\n\n## B\n"
    systems = {"pyserve": found()}
    written = with_tables(page, systems)
    assert written.startswith("# A\n\n<!-- first hour: begin -->\n\n| | pyserve |\n")
    assert written.endswith("\n\n<!-- first hour: end -->\n\n## B\n")
    assert written == with_tables(written, systems)
    with pytest.raises(ValueError, match="first hour: end"):
        with_tables("# A\n", systems)
