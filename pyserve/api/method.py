"""``@pyserve.method``: what a router and a replica should know about one method."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from pyserve.errors import OptionError

Function = TypeVar("Function", bound=Callable[..., object])
_ATTRIBUTE = "__pyserve_method__"


@dataclass(frozen=True, slots=True, kw_only=True)
class MethodOptions:
    """Marks of one method.

    Attributes:
        idempotent: Whether a call may be sent again after it has started; ``None`` leaves it
            to ``option idempotency_level`` of the ``.proto``.
        weight: Slots that a call takes at the admission gate: 1, or 0 for streams that idle.
        timeout_s: Time limit of calls that come without a deadline, above 0; ``None``: none.
    """

    idempotent: bool | None = None
    weight: int = 1
    timeout_s: float | None = None

    def __post_init__(self) -> None:
        if self.weight not in {0, 1}:
            raise OptionError(f"method: weight must be 0 or 1, not {self.weight!r}")
        if self.timeout_s is not None and not self.timeout_s > 0:
            raise OptionError(f"method: timeout_s must be above 0, not {self.timeout_s!r}")


def method(
    *, idempotent: bool | None = None, weight: int = 1, timeout_s: float | None = None
) -> Callable[[Function], Function]:
    """Mark a method of a deployment; see ``MethodOptions`` for the meaning of each mark.

    Raises:
        OptionError: A value is out of range.
    """
    options = MethodOptions(idempotent=idempotent, weight=weight, timeout_s=timeout_s)

    def mark(function: Function) -> Function:
        setattr(function, _ATTRIBUTE, options)
        return function

    return mark


def options_of(function: object) -> MethodOptions:
    """Return the marks of a function, bound or not; the defaults where it has none."""
    options = getattr(function, _ATTRIBUTE, None)
    return options if isinstance(options, MethodOptions) else MethodOptions()
