"""Names of Ray Serve for what a later release brings: imported freely, refused when used."""

from __future__ import annotations

from typing import Any, ClassVar, NoReturn, Self

from pyserve.errors import NotYetSupported


class Later:
    """Base of such classes: annotations may name them, and nobody can make one.

    Attributes:
        instead: What to do until then.
    """

    instead: ClassVar[str] = ""

    def __new__(cls, *_args: Any, **_kwargs: Any) -> Self:
        ours = next(each for each in cls.__mro__ if each.__module__.startswith("pyserve."))
        raise refuse(f"{ours.__module__}.{ours.__name__}", cls.instead)


def refuse(name: str, instead: str) -> NotYetSupported:
    """Return the error for the use of ``name``; the caller raises it."""
    return NotYetSupported(f"{name} comes with a later release of pyserve; until then {instead}")


def refused(name: str, instead: str) -> NoReturn:
    """Raise the error for the call of a function.

    Raises:
        NotYetSupported: Always.
    """
    raise refuse(name, instead)
