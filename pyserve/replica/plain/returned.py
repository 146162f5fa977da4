"""Answers of methods that return a generator instead of yielding themselves.

``def stream(self, n): return self.numbers(n)`` is not a generator function, so whether it answers
with a stream is known only when it has returned.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from types import AsyncGeneratorType, GeneratorType
from typing import TYPE_CHECKING, Any

from pyserve.aio._handlers import Messages
from pyserve.api.handles.stream import DeploymentResponseGenerator
from pyserve.batching.streams import BatchStream
from pyserve.errors import KindError
from pyserve.replica import iterators

if TYPE_CHECKING:
    from pyserve.api.handles.calls import Message
    from pyserve.replica.plain.exchange import Door

GENERATORS = frozenset(
    {GeneratorType, AsyncGeneratorType, BatchStream, DeploymentResponseGenerator}
)
"""Types of results that no codec carries, since they are streams."""


def streamed(label: str, door: Door, result: Any) -> Messages:
    """Return what sends the items of a returned iterator as they are made, and closes it.

    Args:
        label: What messages call the method.
        door: How the call is answered.
        result: What the method has returned: an iterator of either kind, if all is well.

    Raises:
        KindError: The call wants one value, or there is nothing to iterate over.
    """
    if door.streams is False:
        raise KindError(
            f"{label} has returned a generator, which answers with a stream; call it with "
            f".options(stream=True)"
        )
    if isinstance(result, AsyncIterator):
        return Messages(_encoded(door, result))
    if isinstance(result, Iterator):
        return Messages(_encoded_on_a_thread(door, result))
    raise KindError(
        f"{label} has returned {type(result).__qualname__}, no generator; leave "
        f".options(stream=True) out, or let it yield, or return a generator"
    )


async def _encoded(door: Door, items: AsyncIterator[Any]) -> AsyncIterator[Message]:
    try:
        async for item in items:
            yield door.encode(item)
    finally:
        await iterators.close(items)


def _encoded_on_a_thread(door: Door, items: Iterator[Any]) -> Iterator[Message]:
    try:
        for item in items:
            yield door.encode(item)
    finally:
        close = getattr(items, "close", None)
        if close is not None:
            close()
