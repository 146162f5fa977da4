"""How the arguments of one call become a row of a batch, and a batch the function's lists."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from pyserve.errors import BatchError
from pyserve.signatures import read_signature

_KINDS = inspect.Parameter


class Parameters:
    """The parameters of a batched function, ``self`` left out.

    Args:
        function: Bound, or a plain function.
        label: What messages call it.

    """

    __slots__ = ("_signature", "count", "keywords", "label")

    def __init__(self, function: Callable[..., Any], label: str) -> None:
        self.label = label
        self._signature = read_signature(function)
        parameters = self._signature.parameters.values()
        self.count = len(parameters)
        # Names of the columns that go by keyword; they are the last ones.
        self.keywords = tuple(p.name for p in parameters if p.kind is _KINDS.KEYWORD_ONLY)

    def row(
        self, arguments: tuple[object, ...], keywords: Mapping[str, object]
    ) -> tuple[object, ...]:
        """Return one value for each parameter, defaults included.

        Raises:
            TypeError: The call does not fit the signature.
            BatchError: The function has no parameter.
        """
        if not self.count:
            raise BatchError(
                f"{self.label}: it takes nothing, so there is nothing to make lists of; give it a "
                f"parameter"
            )
        try:
            bound = self._signature.bind(*arguments, **keywords)
        except TypeError as error:
            raise TypeError(
                f"{self.label}(): {error}; each call passes single values for {self._signature}"
            ) from None
        bound.apply_defaults()
        return tuple(bound.arguments.values())

    def adapted(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return ``function`` taking all its columns by position."""
        if not self.keywords:
            return function
        names, positional = self.keywords, self.count - len(self.keywords)
        if inspect.isasyncgenfunction(function):

            async def generate(*columns: object) -> Any:
                named = dict(zip(names, columns[positional:], strict=True))
                generator = function(*columns[:positional], **named)
                try:
                    async for results in generator:
                        yield results
                finally:
                    await generator.aclose()

            return generate

        async def call(*columns: object) -> Any:
            named = dict(zip(names, columns[positional:], strict=True))
            return await function(*columns[:positional], **named)

        return call


def check_parameters(function: Callable[..., Any], where: str) -> None:
    """Refuse what has no fixed number of columns; without any, calls are refused.

    Raises:
        BatchError: The function takes ``*args`` or ``**kwargs``.
    """
    parameters = read_signature(function).parameters.values()
    for parameter in parameters:
        if parameter.kind in {_KINDS.VAR_POSITIONAL, _KINDS.VAR_KEYWORD}:
            raise BatchError(
                f"@pyserve.batch on {where}: {str(parameter)!r} is no fixed number of lists; "
                f"name every parameter"
            )
