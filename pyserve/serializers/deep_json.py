"""Writes JSON that is nested too deeply for ``orjson``, which reads four times as deep."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import orjson

# orjson stops at 254. Around a piece of JSON it has room for 64 closing brackets of lists and
# writes all others beyond its buffer (seen with 3.13: the process aborts), so this is far below.
_STEP = 16
# A bound for values that contain themselves. Arbitrary, and far more than any parser reads.
_LEVELS_MAX = 50_000
_CONTAINERS = (dict, list, tuple)


def is_refusal_of_depth(error: TypeError) -> bool:
    """Return whether orjson refuses a value because of its nesting."""
    return str(error) == "Recursion limit reached"


def in_parts(value: Any, dumps: Callable[[Any], bytes]) -> Any:
    """Return a value in which deeply nested containers are replaced by pieces of JSON.

    Containers are dicts, lists, tuples and dataclasses.

    The innermost parts are written first, and their containers then hold the pieces.

    Args:
        value: the value to write; it is returned itself if it is not nested deeply.
        dumps: writes a part, which is not nested deeply.

    Raises:
        TypeError: The nesting is endless, or ``dumps`` cannot write a part.
    """
    pieces: dict[int, orjson.Fragment] = {}
    levels = list(_levels(value))
    for level in reversed(levels[1:]):
        # A part that is at several levels is written for each, and always the same.
        pieces |= {
            key: orjson.Fragment(dumps(_with_pieces(part, pieces, _STEP)))
            for key, part in level.items()
        }
    return _with_pieces(value, pieces, _STEP) if pieces else value


def _levels(value: Any) -> Iterator[dict[int, Any]]:
    """Yield the containers of each level that is written by itself, the outermost first."""
    level = {id(value): value} if _is_container(value) else {}
    for depth in range(_LEVELS_MAX):
        if not level:
            return
        if depth % _STEP == 0:
            yield level
        level = {id(each): each for part in level.values() for each in _containers_in(part)}
    raise TypeError(f"it is nested deeper than {_LEVELS_MAX} levels, or holds itself")


def fields_of(value: Any) -> dict[str, Any]:
    """Return what orjson writes of a dataclass: its attributes without a leading underscore."""
    if hasattr(value, "__dict__"):
        found = dict(vars(value))
    else:
        found = {each.name: getattr(value, each.name) for each in dataclasses.fields(value)}
    return {name: each for name, each in found.items() if not name.startswith("_")}


def _is_container(value: Any) -> bool:
    return isinstance(value, _CONTAINERS) or _is_dataclass(value)


def _is_dataclass(value: Any) -> bool:
    return dataclasses.is_dataclass(value) and not isinstance(value, type)


def _containers_in(part: Any) -> Iterator[Any]:
    if _is_dataclass(part):
        part = fields_of(part)
    held = part.values() if isinstance(part, dict) else part
    return (each for each in held if _is_container(each))


def _with_pieces(value: Any, pieces: dict[int, orjson.Fragment], levels: int) -> Any:
    """Return a value whose containers below so many levels are pieces of JSON."""
    if not _is_container(value):
        return value
    if levels == 0:
        return pieces[id(value)]
    if _is_dataclass(value):
        value = fields_of(value)
    if isinstance(value, dict):
        return {key: _with_pieces(each, pieces, levels - 1) for key, each in value.items()}
    return [_with_pieces(each, pieces, levels - 1) for each in value]
