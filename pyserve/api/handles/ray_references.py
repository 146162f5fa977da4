"""References of Ray itself (``ray.ObjectRef``) among the arguments of a call.

As in Ray Serve they are resolved before the call is sent: arguments of their own, and those that
lie in a list, a tuple or a dict that is an argument. Nothing here imports Ray: a process that has
not done so has no such references.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterable, Iterator
from typing import Any

RAY = "ray"
"""In ``sys.modules`` of those processes that may have some."""


def holds_any(values: Iterable[object]) -> bool:
    """Tell whether a reference is among the values, or lies in one of them."""
    kind = _kind()
    return any(isinstance(each, kind) for value in values for each in (value, *_within(value)))


async def resolved(
    args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return arguments with values in the places of references.

    Raises:
        Exception: What the task of the first reference that has none has raised.
    """
    kind = _kind()
    places = [*args, *kwargs.values()]
    found = {
        id(each): each
        for value in places
        for each in (value, *_within(value))
        if isinstance(each, kind)
    }
    if not found:
        return args, kwargs
    answers = await asyncio.gather(*map(_value, found.values()))
    values = dict(zip(found, answers, strict=True))
    given = [_replaced(value, values) for value in places]
    return tuple(given[: len(args)]), dict(zip(kwargs, given[len(args) :], strict=True))


async def _value(reference: Any) -> Any:
    return await reference


def _replaced(value: Any, values: dict[int, Any]) -> Any:
    if id(value) in values:
        return values[id(value)]
    if not any(id(each) in values for each in _within(value)):
        return value
    if type(value) is dict:
        return {key: values.get(id(each), each) for key, each in value.items()}
    return type(value)(values.get(id(each), each) for each in value)


def _within(value: object) -> Iterator[object]:
    if type(value) in (list, tuple):
        yield from value  # type: ignore[misc]  # it is one of the two
    elif type(value) is dict:
        yield from value.values()


def _kind() -> Any:
    # One that is being imported does not have it yet.
    return getattr(sys.modules[RAY], "ObjectRef", ())
