"""What ``module:attribute`` and ``key=value`` may be."""

import sys
from typing import Any

import click
import pytest

from pyserve.cli.commands import CommandFailed
from pyserve.cli.target import load_application, parse_arguments

SMALL = "tests.mesh.apps.small"
BUILDERS = "tests.unit.cli.builders"


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


@pytest.mark.parity("G-58")
@pytest.mark.parametrize(
    ("attribute", "pairs", "expected"),
    [
        ("Speaker", ["word=a", "times=2"], ((), {"word": "a", "times": 2})),
        ("shout", [], ((), {})),
        ("without", [], (("plain",), {})),
        ("from_dict", ["word=a", "times=2"], ((), {"word": "a", "times": 2})),
        ("from_dict", [], ((), {})),
        ("from_model", ["word=a", "times=3"], (("a",), {"times": 3})),
        ("from_model", [], (("hello",), {"times": 1})),
        ("from_optional", [], (("default",), {})),
        ("from_optional", ["word=a"], (("a",), {})),
        ("factory", ["word=a"], ((), {"word": "a"})),
    ],
)
def test_a_function_gets_the_arguments_as_a_dict_or_as_its_model(
    attribute: str, pairs: list[str], expected: Any
) -> None:
    found = load_application(f"{BUILDERS}:{attribute}", parse_arguments(pairs))

    assert expected == (found.args, dict(found.kwargs))


@pytest.mark.parametrize(
    ("attribute", "pairs", "message"),
    [
        ("from_model", ["times=many"], r"(?s)from_model: .*times.*valid integer"),
        ("without", ["word=a"], "takes no arguments, but word is given"),
        ("Speaker", ["wrod=a"], "wrod"),
        ("takes_two", [], "takes 2 parameters"),
        ("returns_nothing", [], "was called and returned None, which is no application; return"),
        ("handles", [], r"returned \{\}, .* write @pyserve\.deployment above it"),
        ("returns_deployment", [], r"returned a deployment; return .*\.bind\(\.\.\.\)"),
        ("asynchronous", [], "is `async def`"),
        ("Settings", [], "name an application"),
    ],
)
def test_what_does_not_fit_is_named(attribute: str, pairs: list[str], message: str) -> None:
    with pytest.raises((CommandFailed, click.UsageError), match=message):
        load_application(f"{BUILDERS}:{attribute}", parse_arguments(pairs))


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
