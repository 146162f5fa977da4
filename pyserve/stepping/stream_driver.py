"""Awaits the values of a class whose own engine batches, on the event loop; see ``streams``."""

from __future__ import annotations

import asyncio
import inspect
import logging
import time
from collections.abc import AsyncIterator, Callable
from types import AsyncGeneratorType, NoneType
from typing import Any

from pyserve.interrupts import raise_ctrl_c
from pyserve.stepping.calls import Call
from pyserve.stepping.drivers import Command, Driver
from pyserve.stepping.endings import as_exception, odd_yield
from pyserve.stepping.entries import Entry
from pyserve.stepping.options import ContinuousOptions
from pyserve.stepping.streams import Emitter, StreamEngine, takes_emit
from pyserve.stepping.values import Emit, Failed

_LOGGER = logging.getLogger(__name__)
# `step` returns these for a state; they are not values.
_OF_STEPS = (Emit, Failed, NoneType)


class StreamDriver(Driver):
    """Awaits the values of a class whose own engine batches, on the event loop.

    Args:
        model: The instance.
        options: The limits.
        clock: Returns the time that deadlines are in.
    """

    def __init__(
        self,
        model: Any,
        options: ContinuousOptions,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._clock = clock
        self._model = model
        self._takes_emit = takes_emit(model.admit)
        self._readers: dict[Entry[Any], asyncio.Task[None]] = {}
        self._parked: dict[Call, asyncio.Event] = {}
        self._soon: asyncio.Handle | None = None
        self._timer: asyncio.TimerHandle | None = None
        super().__init__(model, options)

    def read_on(self, call: Call) -> None:
        """See ``Driver``."""
        super().read_on(call)
        waits = self._parked.get(call)
        if waits is not None and not call.is_parked:
            waits.set()

    async def close(self) -> None:
        """End all calls, and return when the engine has let go of them."""
        self._bury(self._ended())
        await asyncio.gather(*self._readers.values(), return_exceptions=True)

    def _make_engine(self, model: Any, options: ContinuousOptions) -> StreamEngine:
        self._streams = StreamEngine(
            model, options, self._clock, self._start, self._stop, self.traces
        )
        return self._streams

    def _post(self, command: Command) -> None:
        command()
        self._look_soon()

    def _look_soon(self) -> None:
        # At the end of the turn, so that requests of one turn are admitted in their order.
        if self._soon is None:
            self._soon = self.loop.call_soon(self._look, context=self._context)

    def _look(self) -> None:
        self._soon = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        try:
            self._streams.prepare()
            wakeup = self._streams.next_wakeup()
        except Exception as error:  # A fault of ours: nobody may wait for ever.
            _LOGGER.exception("requests of %s can no longer be handed over", self._name)
            failure = RuntimeError(f"handing requests over failed: {error!r}")
            self._bury(failure)
            self._tell_failed(failure)
            return
        self._hand_out(self._streams.deliveries())
        if wakeup is not None:
            wait_s = max(0.0, wakeup - self._clock())
            self._timer = self.loop.call_later(wait_s, self._look_soon, context=self._context)

    def _bury(self, failure: Exception) -> None:
        self._ends_with = self._ends_with or failure
        self._streams.abandon(self._ends_with)
        self._hand_out(self._streams.deliveries())

    def _start(self, entry: Entry[Any]) -> None:
        reader = self.loop.create_task(self._read(entry), context=entry.call.context)
        self._readers[entry] = reader
        reader.add_done_callback(lambda _: self._readers.pop(entry))

    def _stop(self, entry: Entry[Any]) -> None:
        self._readers[entry].cancel()

    async def _read(self, entry: Entry[Any]) -> None:
        """Hand a request over, and its values out."""
        streams, emit = self._streams, None
        values: AsyncIterator[object]
        failure: Exception | None = None
        try:
            if self._takes_emit:
                emit = values = Emitter(self.loop, streams.options.slack, self._name)
                state = self._model.admit(entry.call.request, emit)
                if inspect.isawaitable(state):
                    state = await state
            else:
                state = values = self._model.admit(entry.call.request)
        except BaseException as error:  # An exit would end the loop of all others.
            raise_ctrl_c(error)
            streams.on_admitted(entry, None, as_exception(error))
        else:
            streams.on_admitted(entry, state, None)
            failure = await self._read_values(entry, values)
        if emit is not None:
            emit.close()
        streams.on_end(entry, failure)
        self._hand_out(streams.deliveries())
        self._look_soon()

    async def _read_values(
        self, entry: Entry[Any], values: AsyncIterator[object]
    ) -> Exception | None:
        """Hand values out at their caller's pace, and close their source; return its failure."""
        streams, call = self._streams, entry.call
        failure: Exception | None = None
        self._hand_out(streams.deliveries())
        try:
            while streams.wants_more(entry):
                if call.is_parked:
                    await self._wait_read(call)
                value = await anext(values)
                if not isinstance(values, Emitter) and isinstance(value, _OF_STEPS):
                    raise odd_yield(self._name, value)
                streams.on_value(entry, value)
                self._hand_out(streams.deliveries())
        except StopAsyncIteration:
            pass
        except BaseException as error:
            raise_ctrl_c(error)
            failure = as_exception(error)
        try:
            if isinstance(values, AsyncGeneratorType):
                await values.aclose()
        except BaseException as error:
            raise_ctrl_c(error)
            failure = failure or as_exception(error)
        return failure

    async def _wait_read(self, call: Call) -> None:
        waits = self._parked[call] = asyncio.Event()
        try:
            await waits.wait()
        finally:
            del self._parked[call]
