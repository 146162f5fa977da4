"""Objects that may be passed as an argument, and references inside of arguments.

Only top-level arguments are resolved. A response inside a list cannot travel, and raises an error;
an ``ObjectRef`` inside a list travels as a reference.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING

from pyserve.errors import SerializationError

if TYPE_CHECKING:
    from typing import Any

    from pyserve.api.handles.answers import Lease
    from pyserve.api.handles.objects import ObjectRef
    from pyserve.serializers import Codec, Parts

    Nested = Sequence[ObjectRef]


class Input:
    """An argument whose value is not here, or not yet.

    A plain base class: every argument of every call is tested for it.
    """

    __slots__ = ()

    async def arrive(self) -> None:
        """Wait until the value is there or elsewhere; cancelling the wait changes nothing.

        Raises:
            Exception: There will be no value; the original error of the call that should make it.
        """
        raise NotImplementedError

    def lease(self) -> Lease | None:
        """Return who holds the value; ``None``: it is here, see ``value``. After ``arrive``."""
        raise NotImplementedError

    def value(self) -> object:
        """Return a value that is here."""
        raise NotImplementedError


async def arrived(inputs: Sequence[Input]) -> None:
    """Wait for all inputs; the first that fails ends the wait with its error."""
    if len(inputs) == 1:
        await inputs[0].arrive()
        return
    # A task group would wrap the error. The other inputs are not needed any more.
    waits = [asyncio.ensure_future(each.arrive()) for each in inputs]
    try:
        await asyncio.gather(*waits)
    finally:
        for wait in waits:
            wait.cancel()


# Finds the references inside arguments, while these are encoded.
#
# A reference inside a list or an object travels as a reference. Only the codec reaches it, so the
# reference reports itself (`note`) to the code that encodes in this thread.


class Use:
    """Whether this process has ever made a reference; before, nobody needs to look for any."""

    has_begun = False


class _Travellers(threading.local):
    found: list[ObjectRef] | None = None


_travellers = _Travellers()


def note(reference: ObjectRef) -> bool:
    """Say that a reference is being encoded; ``False``: not among the arguments of a call."""
    if _travellers.found is None:
        return False
    _travellers.found.append(reference)
    return True


def encode_call(
    codec: Codec, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[Parts, Nested]:
    """Return the body of a call, and the references that lie inside of its arguments.

    A reference whose value is not there yet gets a placeholder: encode again when it is.

    Raises:
        SerializationError: The codec cannot carry the arguments.
    """
    found: list[ObjectRef] = []
    before, _travellers.found = _travellers.found, found
    try:
        return codec.encode_call(args, kwargs), found
    except SerializationError as error:
        raise refusal_of_call(codec, args, kwargs, error) from error.__cause__
    finally:
        _travellers.found = before


def refusal_of_call(
    codec: Codec, args: tuple[Any, ...], kwargs: dict[str, Any], error: SerializationError
) -> SerializationError:
    """Return the error of a codec that cannot carry a call, with the argument that is the reason.

    It is the first one that cannot be carried by itself; if each of them can, ``error`` stays.
    """
    named = [(f"argument {number}", value) for number, value in enumerate(args, 1)]
    named += [(f"argument {name!r}", value) for name, value in kwargs.items()]
    for name, value in named:
        try:
            codec.encode(value)
        except SerializationError as own:
            return SerializationError(f"{name}: {own}")
    return error
