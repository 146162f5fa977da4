"""Runs ``infer`` for one request, whatever kind of method it is."""

from __future__ import annotations

import asyncio
import contextvars
import logging
from collections.abc import AsyncIterator, Callable, Mapping
from concurrent.futures import Executor
from typing import Any

from grpc import StatusCode

from pyserve.errors import Abort
from pyserve.inference.model import Model
from pyserve.inference.tensors import Array
from pyserve.replica.plain_methods import PlainMethod

_LOGGER = logging.getLogger(__name__)
_END = object()


class Runner:
    """Calls ``infer`` of one model.

    Args:
        model: What it declares.
        method: ``infer``.
        executor: Returns the threads for a ``def``.
    """

    def __init__(self, model: Model, method: PlainMethod, executor: Callable[[], Executor]) -> None:
        self.model = model
        self.streams = method.streams
        self._method = method
        self._executor = executor

    async def one(self, arrays: Mapping[str, Array]) -> dict[str, Array]:
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
        function = self._method.function
        if self._method.is_threaded:
            return self._pack(await self._in_thread(function, **arrays))
        return self._pack(await function(**arrays))

    async def many(self, arrays: Mapping[str, Array]) -> AsyncIterator[dict[str, Array]]:
        """Yield the arrays of each answer; of a method that does not yield, of the only one."""
        if not self.streams:
            yield await self.one(arrays)
            return
        items = self._method.function(**arrays)
        if self._method.is_threaded:
            try:
                while (item := await self._in_thread(next, items, _END)) is not _END:
                    yield self._pack(item)
            finally:
                items.close()
            return
        try:
            async for item in items:
                yield self._pack(item)
        finally:
            close = getattr(items, "aclose", None)
            if close is not None:
                await close()

    async def _in_thread(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        context = contextvars.copy_context()
        return await asyncio.get_running_loop().run_in_executor(
            self._executor(), lambda: context.run(function, *args, **kwargs)
        )

    def _pack(self, result: object) -> dict[str, Array]:
        try:
            return self.model.pack(result)
        except TypeError as error:
            _LOGGER.error("model %s: %s", self.model.name, error)
            raise Abort(
                StatusCode.INTERNAL, f"model {self.model.name!r} did not answer as declared"
            ) from error
