"""What ``module:attribute`` and ``key=value`` may be."""

import sys
from typing import Any

import click
import pytest

from pyserve.cli.main import CommandFailed
from pyserve.cli.target import load_application, parse_arguments

SMALL = "tests.mesh.apps.small"


@pytest.fixture(autouse=True)
def own_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))


@pytest.mark.parametrize(
    ("attribute", "arguments", "name", "bound"),
    [
        ("app", {}, "Small", ((), {})),
        ("Small", {}, "Small", ((), {})),
        ("Small", {"prefix": "x"}, "Small", ((), {"prefix": "x"})),
        ("build", {"prefix": "x"}, "Built", (("x",), {})),
    ],
)
def test_an_application_a_deployment_and_a_function_will_do(
    attribute: str, arguments: dict[str, object], name: str, bound: Any
) -> None:
    found = load_application(f"{SMALL}:{attribute}", arguments)
    assert (name, bound) == (found.name, (found.args, dict(found.kwargs)))


def test_the_working_directory_comes_first_on_the_path(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(CommandFailed):
        load_application("nothing_there:app", {})
    assert str(tmp_path) == sys.path[0]


def test_arguments_are_json_where_they_can_be() -> None:
    pairs = ["a=1", "b=x", "c=[1, 2]", "d=true", "e=", "f=x=y"]
    expected = {"a": 1, "b": "x", "c": [1, 2], "d": True, "e": "", "f": "x=y"}
    assert expected == parse_arguments(pairs)


@pytest.mark.parametrize("pair", ["a", "=1"])
def test_an_argument_without_a_key_is_refused(pair: str) -> None:
    with pytest.raises(click.UsageError, match="write key=value"):
        parse_arguments([pair])
