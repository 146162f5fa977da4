"""Declarations of options and of environment variables: each is written once.

An option is a field of a frozen dataclass. ``option`` declares it: the default, what may be written
in its place, and a sentence. From that come its check, its line in the class's docstring, its part
of the YAML's JSON Schema, and its row in the reference (``deploy/release/reference_tables.py``).
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, TypeVar

from pyserve.config.validation import (
    COUNT_MAX,
    SECONDS_MAX,
    check_flag,
    check_integer,
    check_number,
    check_seconds,
)

Value = bool | int | float
Reader = Callable[[Mapping[str, str], str, Any], Any]
Class = TypeVar("Class", bound=type)


@dataclass(frozen=True, kw_only=True)
class Number:
    """Numbers from ``minimum`` (or above it) to ``maximum``."""

    minimum: float
    maximum: float = sys.float_info.max
    exclusive: bool = False

    kind = "number"

    def __call__(self, name: str, value: object) -> float:
        """Return ``value``, or raise an ``OptionError`` that begins with ``name``."""
        return check_number(
            name, value, minimum=self.minimum, maximum=self.maximum, exclusive=self.exclusive
        )

    def schema(self) -> dict[str, Any]:
        """Return it in the words of JSON Schema."""
        bound = "exclusiveMinimum" if self.exclusive else "minimum"
        found: dict[str, Any] = {"type": self.kind, bound: self.minimum}
        return found if self.maximum == sys.float_info.max else found | {"maximum": self.maximum}

    def __str__(self) -> str:
        least = f"{'above' if self.exclusive else 'at least'} {self.minimum:g}"
        is_bounded = self.maximum not in (sys.float_info.max, SECONDS_MAX, COUNT_MAX)
        return f"{least}, at most {self.maximum:.0f}" if is_bounded else least


@dataclass(frozen=True, kw_only=True)
class Seconds(Number):
    """Times from zero (or above it) on."""

    minimum: float = 0
    maximum: float = SECONDS_MAX

    def __call__(self, name: str, value: object) -> float:
        """See ``Number``."""
        return check_seconds(name, value, maximum=self.maximum, exclusive=self.exclusive)


@dataclass(frozen=True, kw_only=True)
class Whole(Number):
    """Whole numbers in a range."""

    minimum: int
    maximum: int = COUNT_MAX

    kind = "integer"

    def __call__(self, name: str, value: object) -> int:
        """See ``Number``."""
        return check_integer(name, value, minimum=self.minimum, maximum=self.maximum)


@dataclass(frozen=True)
class Flag:
    """``True`` or ``False``."""

    def __call__(self, name: str, value: object) -> bool:
        """See ``Number``."""
        return check_flag(name, value)

    def schema(self) -> dict[str, Any]:
        """See ``Number``."""
        return {"type": "boolean"}

    def __str__(self) -> str:
        return "True or False"


@dataclass(frozen=True, kw_only=True)
class Variable:
    """A variable of the environment.

    Attributes:
        name: ``PYSERVE_*``.
        default: The value where it is not set.
        read: Returns the value of a text, see ``pyserve.config.variables``.
        text: What it says, for the reference; Markdown. ``""``: what its option says.
        alias: What Ray Serve calls it; ``""``: it has none.
        shown: The default in the reference, where it is not the value itself.
    """

    name: str
    default: Any
    read: Reader
    text: str = ""
    alias: str = ""
    shown: str = ""

    def default_text(self) -> str:
        """Return the default as the reference shows it."""
        if self.shown or self.default is None:
            return self.shown or "none"
        is_whole = self.default == int(self.default)
        return str(int(self.default)) if is_whole else f"{self.default:g}"


@dataclass(frozen=True, kw_only=True)
class Declared:
    """An option.

    Attributes:
        default: ``None``: somebody else decides.
        text: What it says, for the reference; Markdown without a full stop.
        check: What may be written; ``None``: its class checks it.
        shown: The default in the reference, where it is not that of the field.
        variable: Decides where the option is not written.
        is_of_router: It goes to routers, by its name.
        wire: Its field in ``RouterSettings``, where that has another name.
        is_newer: The release before refuses its name, so it is sent only where it is given.
        none_is_default: ``None`` may be written for the default.
        keeps_replicas: A deploy that changes it keeps the replicas.
        keyword: The type of the keyword, where it takes more than the field.
        under_process: What the launcher ``process`` does about an option that is up to launchers.
        is_without_effect: It is accepted only; ``text`` says why.
    """

    default: object
    text: str
    check: Number | Flag | None = None
    shown: str = ""
    variable: Variable | None = None
    is_of_router: bool = False
    wire: str = ""
    is_newer: bool = False
    none_is_default: bool = False
    keeps_replicas: bool = False
    keyword: str = ""
    under_process: str = ""
    is_without_effect: bool = False

    def default_text(self) -> str:
        """Return the default as the reference shows it."""
        if self.shown:
            return self.shown
        if self.default is None:
            return "none" if self.variable is None else "environment"
        return str(self.default)

    def brief(self) -> str:
        """Return the first part of the sentence, as docstrings have it."""
        text = _plain(self.text.partition("; ")[0]).removesuffix(", see below")
        return f"without an effect: {text}" if self.is_without_effect else text

    def schema(self) -> dict[str, Any]:
        """Return what editors know of the option."""
        known = {} if self.check is None else self.check.schema()
        if known and self.default is None:
            known = {"anyOf": [known, {"type": "null"}]}
        return {"description": self.text, **known}


def option(
    default: Any,
    text: str,
    check: Number | Flag | None = None,
    *,
    factory: Callable[[], Any] | None = None,
    **more: Any,
) -> Any:
    """Return the field of an option; ``more`` is as in ``Declared``."""
    variable = more.pop("variable", None)
    if variable is not None and not variable.text:
        variable = replace(variable, text=text)
    declaration = Declared(default=default, text=text, check=check, variable=variable, **more)
    metadata = {"declared": declaration}
    if factory is not None:
        return field(default_factory=factory, metadata=metadata)
    return field(default=default, metadata=metadata)


def router_option(default: Any, text: str, check: Number | Flag, **more: Any) -> Any:
    """Return the field of an option that is a number, and that routers act upon."""
    return option(default, text, check, is_of_router=True, **more)


def declared(owner: Any) -> Mapping[str, Declared]:
    """Return the options of a class by their names."""
    return {
        each.name: each.metadata["declared"]
        for each in fields(owner)
        if "declared" in each.metadata
    }


def setting(default: Any, name: str, read: Reader, text: str, **more: Any) -> Any:
    """Return the field of a setting that a variable gives; ``more`` is as in ``Variable``."""
    variable = Variable(name=name, default=default, read=read, **more)
    return option(default, text, variable=variable)


def variables_of(owner: Any) -> dict[str, Variable]:
    """Return the variables of a class by the options that they give."""
    found = {name: each.variable for name, each in declared(owner).items()}
    return {name: variable for name, variable in found.items() if variable is not None}


def read_declared(owner: Any, variables: Mapping[str, str]) -> dict[str, Any]:
    """Return what the environment says, by the options of a class.

    Raises:
        OptionError: A variable has a value that cannot be used.
    """
    return {
        name: each.read(variables, each.name, each.default)
        for name, each in variables_of(owner).items()
    }


def aliases(declared_variables: Iterable[Variable]) -> dict[str, str]:
    """Return Ray Serve's names by ours."""
    return {each.name: each.alias for each in declared_variables if each.alias}


def check_options(prefix: str, options: Any) -> None:
    """Check each option of ``options`` by itself.

    Raises:
        OptionError: A value is not allowed; ``prefix`` and the option's name begin the message.
    """
    for name, each in declared(type(options)).items():
        value = getattr(options, name)
        if each.check is not None and not (value is None and each.default is None):
            each.check(f"{prefix}{name}", value)


def documented(owner: Class) -> Class:
    """Give the docstring of a class its options."""
    lines = [f"    {name}: {_plain(each.text)}." for name, each in declared(owner).items()]
    owner.__doc__ = "\n".join([inspect.getdoc(owner) or "", "", "Attributes:", *lines, ""])
    return owner


def _plain(text: str) -> str:
    """Return Markdown as docstrings have it, without the targets of links."""
    return re.sub(r"\[(.+?)\]\(\S+?\)", r"\1", text).replace("`", "``")
