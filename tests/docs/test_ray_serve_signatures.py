"""The page about Ray Serve's signatures is true of ours, and knows every difference."""

import dataclasses
import inspect
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import pyserve
from pyserve import config, handle
from pyserve.api.handles.options import _CHECKS
from pyserve.config import DeploymentOptions
from pyserve.config.http import RoutePrefix

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "ray-serve.md"
_ROW = re.compile(
    r"^\| `(?P<name>[\w.]+)` \| (`(?P<parameter>\w+)`)? ?\| (?P<how>\w*) ?\|"
    r" (`(?P<default>[^`]*)`)? ?\| (?P<why>.*?) ?\|$",
    re.MULTILINE,
)
_KINDS = {
    inspect.Parameter.POSITIONAL_OR_KEYWORD: "any",
    inspect.Parameter.POSITIONAL_ONLY: "position",
    inspect.Parameter.KEYWORD_ONLY: "keyword",
    inspect.Parameter.VAR_POSITIONAL: "rest",
    inspect.Parameter.VAR_KEYWORD: "rest",
}
# Options whose names are looked up, not parameters.
_OPTION = ("deployment", "Deployment.options")


class Ours(NamedTuple):
    how: str
    default: str
    place: int


# The same to write; the page has a table of how these act.
_OTHERWISE = "[acts otherwise](#what-is-written-the-same-and-acts-otherwise)"


def _rows() -> list[re.Match[str]]:
    return list(_ROW.finditer(PAGE.read_text()))


def _object(path: str) -> Any:
    first, *others = path.split(".")
    places = (pyserve, handle, config)
    found = next(getattr(place, first) for place in places if hasattr(place, first))
    for name in others:
        found = getattr(found, name)
    return found


def _text(value: object) -> str:
    if value is None:
        return "none"
    if value is RoutePrefix.DEFAULT:
        return "unsaid"
    if dataclasses.is_dataclass(value):
        return f"{type(value).__name__}()"
    return str(list(value)) if isinstance(value, tuple) else str(value)


def _parameters(path: str) -> Mapping[str, Ours]:
    found = _object(path)
    signature = inspect.signature(found)
    factories = {
        field.name: _text(field.default_factory())
        for field in (dataclasses.fields(found) if dataclasses.is_dataclass(found) else ())
        if field.default_factory is not dataclasses.MISSING
    }
    taken = [each for each in signature.parameters.values() if each.name != "self"]
    ours = {
        each.name.removeprefix("_") if _KINDS[each.kind] == "rest" else each.name: Ours(
            _KINDS[each.kind],
            factories.get(each.name, "" if each.default is each.empty else _text(each.default)),
            place,
        )
        for place, each in enumerate(taken)
    }
    if path in _OPTION:
        options = DeploymentOptions()
        for field in dataclasses.fields(options):
            ours[field.name] = Ours("keyword", _text(getattr(options, field.name)), -1)
    return ours


def _difference(row: re.Match[str]) -> str:
    """Say how ours differs from what the row has of theirs; ``""``: it does not."""
    ours = _parameters(row["name"])
    if row["name"] == "DeploymentHandle.options":
        return "" if row["parameter"] in _CHECKS else "is not there"
    found = ours.get(row["parameter"]) or ours.get("function" if row["how"] == "position" else "")
    if found is None:
        return "is not there"
    if found.how != row["how"] and (found.how, row["how"]) != ("any", "keyword"):
        return f"is {found.how}"
    if found.how == row["how"] == "any" and found.place != _place(row):
        return f"is number {found.place}"
    theirs = row["default"] or ""
    return "" if found.default == theirs.strip('"') else f"is {found.default} by default"


def _place(row: re.Match[str]) -> int:
    same = [each["parameter"] for each in _rows() if each["name"] == row["name"]]
    return same.index(row["parameter"])


@pytest.mark.parametrize("row", _rows(), ids=lambda row: f"{row['name']}-{row['parameter']}")
def test_a_signature_is_theirs_or_says_why_not(row: re.Match[str]):
    if row["parameter"] is None:
        assert callable(_object(row["name"]))
        required = [each for each in _parameters(row["name"]).values() if each.default == ""]
        assert [] == [each for each in required if each.how != "rest"]
    else:
        why = row["why"].removeprefix(_OTHERWISE)
        assert bool(why) == bool(_difference(row)), _difference(row) or "no difference"


def test_what_acts_otherwise_stands_in_the_table_that_says_how():
    section = PAGE.read_text().split("\n## What is written the same")[1].split("\n## ")[0]
    told = {row["parameter"] for row in _rows() if row["why"] == _OTHERWISE}

    assert {"root_path", "middlewares", "location"} == told
    assert all(f"({name}=" in section for name in told)


def test_what_is_not_there_is_not_there():
    section = PAGE.read_text().split("## What has no counterpart")[1].split("\n## ")[0]
    names = re.findall(r"`(\w+)`[,|]|`(\w+)` \|", section)

    for first, second in names:
        assert not hasattr(pyserve, first or second)
