"""What ``step`` of a continuously batched class returns for each state."""

from __future__ import annotations

from typing import Final


class Emit:
    """Values for the caller of one state, who goes on to wait for more.

    Args:
        values: In their order; none is the same as ``None`` in place of this.
    """

    __slots__ = ("values",)
    __match_args__ = ("values",)

    def __init__(self, *values: object) -> None:
        self.values: Final = values

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(map(repr, self.values))})"


class Done(Emit):
    """The last values for the caller of one state, whose call ends with them.

    Args:
        values: In their order. Without any, the value before it was the last one.
    """

    __slots__ = ()


class Failed:
    """The call of one state fails; the others of the step go on.

    Args:
        exception: What its caller gets.

    Raises:
        TypeError: It is not an exception.
    """

    __slots__ = ("exception",)
    __match_args__ = ("exception",)

    def __init__(self, exception: BaseException) -> None:
        if not isinstance(exception, BaseException):
            raise TypeError(f"Failed takes an exception instance, not {exception!r}")
        self.exception: Final = exception

    def __repr__(self) -> str:
        return f"Failed({self.exception!r})"
