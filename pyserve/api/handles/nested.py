"""Finds the references inside arguments, while these are encoded.

A reference inside a list or an object travels as a reference. Only the codec reaches it, so the
reference reports itself (``note``) to the code that encodes in this thread.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from pyserve.api.handles.objects import ObjectRef
    from pyserve.serializers import Codec, Parts

    Nested = Sequence[ObjectRef]
else:
    Nested = tuple


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
    finally:
        _travellers.found = before
