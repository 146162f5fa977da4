"""Values of subclasses, named tuples and dataclasses: taken apart, and put together again.

Of a subclass of a built-in type, what its base holds travels, with its ``__dict__``. If the class
cannot be imported, that base arrives. No constructor and no method of the class runs.
"""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Callable, Iterable, Mapping
from typing import Any

Apart = Callable[[Any], Any]
Together = Callable[[Any, Any], None]


def _nothing(_made: Any, _parts: Any) -> None:
    """Add nothing: the constructor of the base has got all."""


# Methods of the base, since those of the subclass are the user's. What makes one of parts that its
# constructor does not get stands last.
_SCALARS: Mapping[type, Apart] = {
    str: str.__str__,
    int: int.__pos__,
    float: float.__pos__,
    bytes: lambda value: bytes(memoryview(value)),
}
_CONTAINERS: Mapping[type, tuple[Callable[[Any], Iterable[Any]], Together]] = {
    collections.OrderedDict: (collections.OrderedDict.items, collections.OrderedDict.update),
    dict: (dict.items, dict.update),
    collections.deque: (collections.deque.__iter__, collections.deque.extend),
    list: (list.__iter__, list.extend),
    set: (set.__iter__, set.update),
    frozenset: (frozenset.__iter__, _nothing),
    tuple: (tuple.__iter__, _nothing),
}
_BY_NAME = {base.__name__: base for base in (*_SCALARS, *_CONTAINERS)}
_FROZEN = (*_SCALARS, frozenset, tuple)


def base_of(kind: type) -> type | None:
    """Return the built-in type, or type of ``collections``, that a type is or is made from."""
    return next((each for each in kind.__mro__ if each in _BY_NAME.values()), None)


def items_of(value: object) -> list[Any] | None:
    """Return what is in a container, pairs of a mapping; ``None``: it is no container."""
    base = base_of(type(value))
    return None if base is None or base not in _CONTAINERS else list(_CONTAINERS[base][0](value))


def scalar_of(value: object) -> Any:
    """Return the value of a subclass of a scalar type as one of that type."""
    base = base_of(type(value))
    return None if base is None else _SCALARS[base](value)


def state_of(value: object) -> dict[str, object]:
    """Return what is in the ``__dict__`` of a value."""
    return dict(getattr(value, "__dict__", {}))


def fields_of(value: Any) -> dict[str, object]:
    """Return the fields of a dataclass that have values."""
    found = {}
    for each in dataclasses.fields(value):
        try:
            found[each.name] = object.__getattribute__(value, each.name)
        except AttributeError:
            continue
    return found


def of_base(kind: object, base_name: str, parts: Any, state: Mapping[str, Any]) -> object:
    """Return a value of ``kind``, or of its base if that is no class made from it."""
    base: Any = _BY_NAME[base_name]
    made_of: Any = kind if isinstance(kind, type) and issubclass(kind, base) else base
    if base in _FROZEN:
        try:
            made = base.__new__(made_of, parts)
        except TypeError:  # Types in C whose tuples have more than their items.
            return base(parts)
    else:
        made = base.__new__(made_of)
        _CONTAINERS[base][1](made, parts)
    if state:
        made.__dict__.update(state)
    return made


def of_fields(kind: object, fields: Mapping[str, Any]) -> object:
    """Return a dataclass with these fields.

    Raises:
        TypeError: ``kind`` is no dataclass, or has other fields.
    """
    if not (isinstance(kind, type) and dataclasses.is_dataclass(kind)):
        raise TypeError(f"{kind} is no dataclass")
    known = {each.name for each in dataclasses.fields(kind)}
    if not known.issuperset(fields):
        raise TypeError(f"{kind} has other fields")
    made: object = object.__new__(kind)
    for name, value in fields.items():
        object.__setattr__(made, name, value)
    return made
