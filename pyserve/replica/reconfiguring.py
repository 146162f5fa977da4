"""Applies a new ``user_config`` while the replica serves."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable
from typing import Self

from pyserve.observe.metrics.families import Tally
from pyserve.replica.loading import LoadError, reconfigure
from pyserve.wire.v1 import mesh_pb2


class Reconfigurer:
    """Calls ``reconfigure`` for one command after the other while its context is entered.

    Of several that wait only the last one counts. Runs in the loop of user code.

    Args:
        instance: The user's object.
        timeout_s: How long one may take.
        config: Number of the configuration that it has.
        report: Sends the outcome to the controller.
        times: Takes how long each took.
    """

    def __init__(
        self,
        instance: object,
        *,
        timeout_s: float,
        config: int,
        report: Callable[[mesh_pb2.Reconfigured], Awaitable[None]],
        times: Tally | None = None,
    ) -> None:
        self._instance = instance
        self.timeout_s = timeout_s
        self._report = report
        self._times = times or Tally()
        self._outcome = mesh_pb2.Reconfigured(config=config)
        self._wanted: mesh_pb2.Reconfigure | None = None
        self._task: asyncio.Task[None] | None = None
        self._has_ended = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self._has_ended = True
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    def take(self, wanted: mesh_pb2.Reconfigure) -> None:
        """Apply a configuration as soon as the one before is done; report the outcome."""
        self._wanted = wanted
        if not self._has_ended and (self._task is None or self._task.done()):
            self._task = asyncio.create_task(self._run(), name="pyserve reconfigure")

    async def _run(self) -> None:
        while (wanted := self._wanted) is not None:
            self._wanted = None
            # The same one comes again where the controller has missed the answer.
            if wanted.config != self._outcome.config:
                self._outcome = await self._outcome_of(wanted)
            await self._report(self._outcome)

    async def _outcome_of(self, wanted: mesh_pb2.Reconfigure) -> mesh_pb2.Reconfigured:
        outcome = mesh_pb2.Reconfigured(config=wanted.config)
        config = json.loads(wanted.user_config_json)
        begun = time.monotonic()
        try:
            await reconfigure(self._instance, config, timeout_s=self.timeout_s)
        except LoadError as error:
            outcome.summary, outcome.traceback = error.summary, error.traceback
        self._times.add(time.monotonic() - begun)
        return outcome
