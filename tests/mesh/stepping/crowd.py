"""Simulated engines for ten thousand streams at once, which count what they hold.

One makes its steps for ``@pyserve.continuous``, the other batches by itself. Tests lead them: any
step can be held, while streams arrive or callers leave.
"""

from __future__ import annotations

import threading
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import pyserve
from pyserve import Done, Emit
from pyserve.stepping.decorator import find_driver
from services.echo import echo_pb2, echo_pb2_grpc
from services.letters.model import Cache, Floats
from services.passthrough.engine import Engine

STREAMS = 10_000
# For calls that lead and ask.
_BESIDES = 16
# One state in so many has a value in each step, so values leave a thousand at a time.
_TURNS = 10
_STEP_S = 0.01
_PAGE_BYTES = 4096


class Gate:
    """Holds the steps of an engine.

    Args:
        is_open: Whether the first ones go through.

    Attributes:
        steps: How many states each had, and how many had been released before it.
        holds: States of the step that is held; 0: none is.
    """

    def __init__(self, *, is_open: bool) -> None:
        self.steps: list[tuple[int, int]] = []
        self.holds = 0
        self._changed = threading.Condition()
        self._is_open = is_open
        self._may_pass = 0

    def enter(self, states: int, released: int) -> None:
        """Wait, on the thread that steps, until this step may go on."""
        with self._changed:
            self.steps.append((states, released))
            self.holds = states
            self._changed.wait_for(lambda: self._is_open or self._may_pass)
            self._may_pass = 0
            self.holds = 0

    def hold(self, states: int) -> bool:
        """Hold the next step, or let it go on if it has fewer states; say whether it has these."""
        with self._changed:
            self._is_open = False
            if 0 < self.holds < states:
                self._may_pass = 1
                self._changed.notify()
            return self.holds == states

    def open(self) -> int:
        """Let all steps go on; return the number of the next one."""
        with self._changed:
            self._is_open = True
            self._changed.notify()
            return len(self.steps)


class Led(echo_pb2_grpc.EchoServicer):
    """What tests tell and ask.

    Attributes:
        released: Calls of ``release``.
    """

    def __init__(self, gate: Gate) -> None:
        self.gate = gate
        self.released = 0

    def release(self, _state: Any) -> None:
        self.released += 1

    async def hold(self) -> bool:
        """Hold a step that all streams share; return whether one is held."""
        return self.gate.hold(STREAMS)

    async def free(self) -> int:
        """Let all steps go on; return the number of the next one."""
        return self.gate.open()

    async def made(self, number: int) -> tuple[int, int] | None:
        """Return how many states a step had, and how many had been released before it."""
        steps = self.gate.steps
        return steps[number] if number < len(steps) else None

    async def gone(self) -> int:
        """Return how many streams have been released."""
        return self.released

    async def wanted(self) -> int:
        """Return how many streams have a caller who has not left."""
        driver = find_driver(self)
        return 0 if driver is None else driver._calls

    def memory_bytes(self) -> int:
        """Return the resident memory of this process."""
        return int(Path("/proc/self/statm").read_text().split()[1]) * _PAGE_BYTES


def _count(request: Any) -> int:
    return request if isinstance(request, int) else int(request.messages)


def _value(request: Any, number: int) -> Any:
    return number if isinstance(request, int) else echo_pb2.EchoReply(payload=b"%d" % number)


@dataclass(eq=False, slots=True)
class _State:
    request: Any
    turn: int
    made: int = 0


@pyserve.deployment(max_ongoing_requests=STREAMS + _BESIDES)
@pyserve.continuous(max_running=STREAMS, max_waiting=_BESIDES)
class Stepped(Led):
    """Counts up to what a request asks for; idles until all streams have been there."""

    EchoStream = pyserve.steps()

    def __init__(self) -> None:
        super().__init__(Gate(is_open=True))
        self._admitted = 0

    def admit(self, request: Any) -> _State:
        self._admitted += 1
        return _State(request, self._admitted % _TURNS)

    def step(self, states: list[_State]) -> list[Any]:
        self.gate.enter(len(states), self.released)
        time.sleep(_STEP_S)
        if self._admitted < STREAMS:
            return [None] * len(states)
        turn = len(self.gate.steps) % _TURNS
        return [self._advance(state) if state.turn == turn else None for state in states]

    def _advance(self, state: _State) -> Any:
        state.made += 1
        value = _value(state.request, state.made)
        return Done(value) if state.made >= _count(state.request) else Emit(value)


class _Counting:
    """A model whose passes take no time, once they may be made."""

    def __init__(self, led: Led) -> None:
        self._led = led
        self._cache = Cache(1, 4)

    def new_cache(self) -> Cache:
        return self._cache

    def extend(self, parts: Sequence[tuple[Cache, Sequence[int]]]) -> Floats:
        self._led.gate.enter(len(parts), self._led.released)
        return np.zeros((len(parts), 1))


@pyserve.deployment(max_ongoing_requests=STREAMS + _BESIDES)
@pyserve.continuous(max_running=STREAMS, max_waiting=_BESIDES)
class Batching(Led):
    """The same by the engine of ``services.passthrough``, which batches by itself."""

    EchoStream = pyserve.steps()

    def __init__(self) -> None:
        super().__init__(Gate(is_open=False))
        self._engine = Engine(_Counting(self))

    async def admit(self, request: Any) -> AsyncIterator[Any]:
        stream = self._engine.generate([0], max_tokens=_count(request), temperature=0.0, seed=0)
        number = 0
        async with aclosing(stream):
            async for _ in stream:
                number += 1
                yield _value(request, number)

    async def wanted(self) -> int:
        """Return how many streams the engine has not been told to forget."""
        return self._engine.running


steps = Stepped.options(name="Crowd").bind()
engine = Batching.options(name="Crowd").bind()
