"""Runs ``infer`` for one request, whatever kind of method it is."""

from __future__ import annotations

import contextvars
import functools
from collections.abc import AsyncIterator, Mapping
from typing import Any

from grpc import StatusCode

from pyserve.aio._tasks import on_thread, steps_on_threads
from pyserve.errors import Abort
from pyserve.inference.declaration import Model
from pyserve.inference.tensors import Array
from pyserve.observe.failures import failure_logger
from pyserve.replica import iterators
from pyserve.replica.plain.methods import PlainMethod

_LOGGER = failure_logger(__name__)


class Runner:
    """Calls ``infer`` of one model.

    Args:
        model: What it declares.
        method: ``infer``.

    ``call`` is in all methods what the request came with: an ``HttpCall`` or the context of an
    RPC, whose server has the threads for a ``def``.
    """

    def __init__(self, model: Model, method: PlainMethod) -> None:
        self.model = model
        self.streams = method.streams
        self._method = method

    async def one(self, arrays: Mapping[str, Array], call: Any) -> dict[str, Array]:
        """Return the arrays of one answer.

        Raises:
            Abort: UNIMPLEMENTED for a method that yields; INTERNAL when the result is not as
                declared; whatever user code aborts with.
            Exception: Whatever user code raises.
        """
        if self.streams:
            raise Abort(
                StatusCode.UNIMPLEMENTED,
                f"model {self.model.name!r} answers with a stream: call ModelStreamInfer",
            )
        function = functools.partial(self._method.function, **arrays)
        if self._method.is_threaded:
            return self._pack(await on_thread(call, contextvars.copy_context(), function))
        return self._pack(await function())

    async def many(self, arrays: Mapping[str, Array], call: Any) -> AsyncIterator[dict[str, Array]]:
        """Yield the arrays of each answer; of a method that does not yield, of the only one."""
        if not self.streams:
            yield await self.one(arrays, call)
            return
        items = self._method.function(**arrays)
        if self._method.is_threaded:
            items = steps_on_threads(call, items)
        try:
            async for item in items:
                yield self._pack(item)
        finally:
            await iterators.close(items)

    def _pack(self, result: object) -> dict[str, Array]:
        try:
            return self.model.pack(result)
        except TypeError as error:
            _LOGGER.error("model %s: %s", self.model.name, error)
            raise Abort(
                StatusCode.INTERNAL, f"model {self.model.name!r} did not answer as declared"
            ) from error
