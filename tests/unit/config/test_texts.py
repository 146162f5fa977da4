"""JSON is read as JSON, YAML with the numbers of 1.2, and neither becomes more than it says."""

from __future__ import annotations

import json
import tracemalloc
from typing import Any

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from pyserve.config.files import MeshFile, dump
from pyserve.config.texts import ALIASED_CHARACTERS_MAX, TextError, read
from pyserve.errors import OptionError, UsageError
from pyserve.gateway.security import read_access_file

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXTS
    | st.from_regex(r"[-+]?[0-9oxeE._:]{1,6}", fullmatch=True)
)
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4)
)
MAPPINGS = st.dictionaries(TEXTS, VALUES, max_size=4)


def value(text: str) -> Any:
    (found,) = dict(read(text)[0]).values()  # type: ignore[call-overload]
    return found


@given(MAPPINGS, st.booleans(), st.sampled_from([None, 1]))
@example({"a": 1e-05, "b": "\U0001f600", "c": "1e5", "d": "010"}, True, None)
def test_json_is_what_a_reader_of_json_finds(
    values: dict[str, Any], is_ascii: bool, indent: int | None
) -> None:
    text = json.dumps(values, ensure_ascii=is_ascii, indent=indent)
    assert json.loads(text) == read(text)[0]


@given(MAPPINGS)
@example({"a": "1e-05", "b": "0o17", "c": "1_000", "d": "1:30", "e": "010", "f": 1e-7})
def test_what_is_written_is_the_same_to_every_reader(values: dict[str, Any]) -> None:
    text = dump(values)
    assert values == (read(text)[0] or {})
    assert values == yaml.safe_load(text)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("1e-05", 1e-05),
        ("1e5", 1e5),
        ("-2E+3", -2000.0),
        (".5", 0.5),
        ("5.", 5.0),
        ("010", 10),
        ("0o17", 15),
        ("0x1F", 31),
        ("+7", 7),
        ("1_000", "1_000"),
        ("0b11", "0b11"),
        ("1:30", "1:30"),
        ("1.5.2", "1.5.2"),
        ("'1e5'", "1e5"),
        ('"\\ud83d\\ude00"', "\U0001f600"),
        ("yes", True),
    ],
)
def test_scalars_of_yaml_are_those_of_its_second_version(text: str, found: object) -> None:
    assert (type(found), found) == (type(value(f"a: {text}")), value(f"a: {text}"))
    assert found == value(f"a: {text}  # and more\n")
    assert [found] == value(f"{{a: [{text}]}}")


@pytest.mark.parametrize(
    "text",
    [
        *('{"a": NaN}', '{"a": -Infinity}', '{"a": 1e999}', '{"a": 1, "b": {"c": 1, "c": 2}}'),
        *('{"a": "\\ud83d"}', f'{{"a": {"9" * 5000}}}', f'{{"a": {"[" * 100_000}', "[" * 100_000),
        *('a: "\\ude00"', "a: .inf", "a: .nan", "a: 1e999", f"a: {'9' * 5000}", "a: 2026-01-01"),
        *("a: &x [*x]", "a: &x {b: *x}", "a: !!set {b}", "? [1]\n: 2", "a: !!int x"),
        "a: " + "{b: " * 2_000,
        f'{{"a": {"[" * 100_000}{"]" * 100_000}}}',
    ],
    ids=lambda text: text[:20],
)
def test_what_json_cannot_hold_is_refused(text: str) -> None:
    with pytest.raises(TextError):
        read(text)
    with pytest.raises(UsageError, match=r"serve.yaml"):
        MeshFile("serve.yaml", text)


def bomb(levels: int, merged: bool) -> str:
    """Return a few hundred bytes of which each level has ten times what the one before has."""
    lines = ["l0: &l0 {k: lol}" if merged else "l0: &l0 [lol]"]
    for level in range(1, levels):
        parts = ", ".join([f"*l{level - 1}"] * 10)
        lines.append(
            f"l{level}: &l{level} {{<<: [{parts}]}}" if merged else f"l{level}: &l{level} [{parts}]"
        )
    return "\n".join(lines)


@pytest.mark.parametrize("merged", [False, True])
@pytest.mark.parametrize("levels", [8, 40])
def test_a_little_that_aliases_make_much_of_is_refused(levels: int, merged: bool) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(TextError, match=f"more than {ALIASED_CHARACTERS_MAX} characters"):
            read(bomb(levels, merged))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 10_000_000


def test_aliases_that_share_a_few_options_are_taken() -> None:
    text = (
        "base: &base {num_replicas: 2}\nall:\n" + "- *base\n" * 1_000 + "one: {<<: *base, a: 1}\n"
    )
    found: Any = read(text)[0]
    assert [{"num_replicas": 2}] * 1_000 == found["all"]
    assert {"num_replicas": 2, "a": 1} == found["one"]


def test_mistakes_in_json_have_their_places_too() -> None:
    text = '{"applications": [\n  {"name": "a", "import_path": "a:b", "arg": 1e-05}]}'
    with pytest.raises(UsageError, match=r"^serve.yaml:2:39: .*did you mean 'args'"):
        MeshFile("serve.yaml", text)


def test_access_rules_are_read_with_the_same_bounds(tmp_path: Any) -> None:
    file = tmp_path / "access.yaml"
    file.write_text(bomb(9, merged=False))
    with pytest.raises(OptionError, match=r"access.yaml:\d+: its aliases make more than"):
        read_access_file(file)
