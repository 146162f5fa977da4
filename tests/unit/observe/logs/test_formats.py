"""The lines of records that resist: none is lost, and each is what its form says."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyserve.observe.logs.formats import JsonFormatter, TextFormatter, json_of, output_as_json

INNERMOST_SHOWN = 30


class Mute:
    """Has no text."""

    def __str__(self) -> str:
        raise RuntimeError("no text")

    __repr__ = __str__


def record(msg: object = "sold", *args: object, level: int = 30, **extra: Any) -> logging.LogRecord:
    made = logging.LogRecord("shop", level, "/srv/shop.py", 7, msg, args, None)
    vars(made).update(extra)
    return made


def as_object(made: logging.LogRecord) -> dict[str, Any]:
    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is not JSON")

    line = JsonFormatter({}).format(made)
    assert "\n" not in line
    found: dict[str, Any] = json.loads(line, parse_constant=refuse)
    return found


FACTS = {"component": "replica", "application": "shop", "deployment": "Shop", "replica": "Shop#1"}


def test_values_of_code_do_not_hide_what_the_mesh_names_nor_are_lost() -> None:
    given: dict[str, Any] = {name: f"its {name}" for name in FACTS}
    found = json.loads(JsonFormatter(FACTS).format(record(**given)))
    assert {**FACTS, **{f"extra_{name}": value for name, value in given.items()}} == {
        name: value for name, value in found.items() if name.removeprefix("extra_") in FACTS
    }


def test_a_name_that_code_has_used_itself_stays_its_own() -> None:
    given = {"replica": 3, "extra_replica": 4}
    found = json.loads(JsonFormatter(FACTS).format(record(**given)))
    assert ("Shop#1", 4, 3) == (
        found["replica"],
        found["extra_replica"],
        found["extra_extra_replica"],
    )


def test_additional_attributes_leave_the_names_of_the_mesh() -> None:
    formatter = JsonFormatter(FACTS, ["replica", "process"])
    found = json.loads(formatter.format(record(replica=3, process=7)))
    assert ("Shop#1", 3, 7) == (found["replica"], found["extra_replica"], found["process"])


def test_a_field_may_be_what_has_no_truth_value() -> None:
    class Neither:
        def __bool__(self) -> bool:
            raise ValueError("neither")

        def __str__(self) -> str:
            return "neither"

    assert "neither" == as_object(record(choice=Neither()))["choice"]


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="logging names the task itself")
def test_a_name_of_later_pythons_is_a_field() -> None:
    assert "restock" == as_object(record(taskName="restock"))["taskName"]


def in_itself() -> dict[str, Any]:
    circle: dict[str, Any] = {"n": 1}
    circle["left"], circle["right"] = circle, [circle]
    return circle


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({("a", 1): 2}, {"('a', 1)": 2}),
        ({1: 2, None: 3, False: 4, 0.5: 5}, {"1": 2, "null": 3, "false": 4, "0.5": 5}),
        ({Mute(): 1}, {"<Mute without a text>": 1}),
        (Mute(), "<Mute without a text>"),
        ([1, Mute()], [1, "<Mute without a text>"]),
        (float("nan"), "nan"),
        ([float("inf"), {float("-inf"): 1.5}], ["inf", {"-inf": 1.5}]),
        (in_itself(), {"n": 1, "left": "...", "right": ["..."]}),
        ({"half": "\ud800", "key": {b"k": 1}}, {"half": "\\ud800", "key": {"b'k'": 1}}),
        ([10**5000], ["<int without a text>"]),
    ],
)
def test_what_json_has_not_is_written_as_its_text(given: object, expected: Any) -> None:
    found = as_object(record(given=given))
    assert ("sold", "WARNING", 7) == (found["message"], found["levelname"], found["lineno"])
    assert expected == found["given"]


def test_what_lies_too_deep_is_cut_off() -> None:
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    found = as_object(record(deep=deep))["deep"]
    depth = 0
    while found != "...":
        (found,) = found
        depth += 1
    assert depth > INNERMOST_SHOWN


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        (record("%d of %s", "x"), "%d of %s with ('x',) makes no message: TypeError: "),
        (record("%s", Mute()), "%s with <tuple without a text> makes no message: RuntimeError: "),
        (record(Mute()), "<Mute without a text> makes no message: RuntimeError: no text"),
        (record("%(a)s", {"b": 1}), "%(a)s with {'b': 1} makes no message: KeyError: 'a'"),
    ],
)
def test_a_message_that_cannot_be_made_says_why_and_where(
    made: logging.LogRecord, expected: str
) -> None:
    line = TextFormatter().format(made)
    assert line.startswith("W ")
    for text in (line.partition(" shop: ")[2], as_object(made)["message"]):
        assert text.startswith(expected)
        assert text.endswith(" (/srv/shop.py:7)")


def test_an_attribute_without_a_text_costs_itself_alone() -> None:
    line = TextFormatter(["given"]).format(record(given=Mute()))
    assert line.endswith(" shop: sold given=<Mute without a text>")


@pytest.fixture
def level_names() -> Iterator[None]:
    before = {level: logging.getLevelName(level) for level in (25, 30, 40)}
    yield
    for level, name in before.items():
        logging.addLevelName(level, name)


@pytest.mark.usefixtures("level_names")
@pytest.mark.parametrize(
    ("level", "name", "letter", "written"),
    [
        (40, "\033[1;31mERROR\033[0m", "E", "ERROR"),
        (30, "\033[0;33m[WARNING]\033[0;0m", "W", "WARNING"),
        (30, "WARN", "W", "WARN"),
        (40, " [E] ", "E", " [E] "),
        (25, "\033[36mNOTICE\033[0m", "N", "NOTICE"),
        (25, "NOTICE", "N", "NOTICE"),
        (25, "\033[0m", "?", ""),
    ],
)
def test_a_level_with_colours_is_the_level(
    level: int, name: str, letter: str, written: str
) -> None:
    logging.addLevelName(level, name)
    made = record(level=level)
    assert TextFormatter().format(made).startswith(f"{letter} ")
    assert written == as_object(made)["levelname"]


LINE_BYTES_MAX = 2000


@pytest.mark.parametrize(
    "made",
    [
        record("x" * 5000, request_id="order-7"),
        record("\U0001f600" * 5000, request_id="order-7"),
        record("sold", given=["y" * 3000] * 3, other="z" * 3000, request_id="order-7"),
        record(
            "sold", request_id="order-7", exc_text="x" * 5000 + "ValueError: last", exc_info=True
        ),
        record("sold", request_id="order-7", **{f"extra_{each}": each for each in range(500)}),
    ],
    ids=["long", "wide", "extra", "traceback", "many"],
)
def test_a_long_record_is_an_object_within_the_bound(made: logging.LogRecord) -> None:
    line = JsonFormatter({"component": "replica"}, line_bytes_max=LINE_BYTES_MAX).format(made)
    assert len(line) <= LINE_BYTES_MAX
    found = json.loads(line)
    assert ("WARNING", "replica", 7) == tuple(
        found[key] for key in ("levelname", "component", "lineno")
    )
    if "extra_0" not in vars(made):
        assert "order-7" == found["request_id"]
    if "exc_text" in found:
        assert found["exc_text"].endswith("ValueError: last")
    assert len(JsonFormatter({}).format(made)) > LINE_BYTES_MAX


def test_a_record_behind_what_was_printed_without_an_end_has_a_line_of_its_own() -> None:
    line = JsonFormatter({}).format(record("sold"))
    printed, written = output_as_json(f"[Shop#1]  50%|## | {line}").split("\n")
    assert {"name": "output", "replica": "Shop#1", "message": " 50%|## | "}.items() <= (
        json.loads(printed).items()
    )
    assert line == written
    assert "\n" not in output_as_json("[Shop#1] " + line)
    assert "\n" not in output_as_json('[Shop#1] see {"asctime": "')


@given(st.text(st.characters() | st.characters(categories=["Cs"])))
def test_json_has_no_lone_surrogate(text: str) -> None:
    line = json_of({"message": text, f"field {text}": 1})
    assert line.isascii()
    pairs_joined = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
    assert pairs_joined.encode("utf-8", "backslashreplace").decode() == json.loads(line)["message"]
