"""A class that answers all its doors by steps, and says what it holds."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import pyserve
from pyserve import Done, Emit, Failed
from pyserve.stepping.decorator import find_driver, load_of
from pyserve.stepping.process_driver import ProcessDriver
from services.echo import echo_pb2, echo_pb2_grpc

_STEP_S = 0.005


@dataclass(eq=False)
class _State:
    request: Any
    left: int
    made: int = 0

    @classmethod
    def of(cls, request: Any) -> _State:
        if isinstance(request, dict):
            return cls(request, request["count"])
        if isinstance(request, echo_pb2.StreamRequest):
            return cls(request, request.messages)
        return cls(request, 3)

    def advance(self) -> Any:
        self.made += 1
        request = self.request
        if isinstance(request, dict):
            if request.get("fails_at") == self.made:
                return Failed(ValueError(f"failed at {self.made}"))
            value: Any = {"made": self.made}
        else:
            value = echo_pb2.EchoReply(payload=request.payload + b"%d" % self.made)
        return Done(value) if self.made >= self.left else Emit(value)


class _Counting:
    """Counts: a JSON object has ``count``, and perhaps ``fails_at`` and ``cost``."""

    def __init__(self) -> None:
        self.admitted = self.released = self.steps = 0

    def cost(self, what: Any) -> int:
        request = what.request if isinstance(what, _State) else what
        return request.get("cost", 1) if isinstance(request, dict) else 1

    def admit(self, request: Any) -> _State:
        self.admitted += 1
        return _State.of(request)

    def step(self, states: list[_State]) -> list[Any]:
        self.steps += 1
        time.sleep(_STEP_S)
        return [state.advance() for state in states]

    def release(self, state: _State) -> None:
        self.released += 1

    async def tally(self) -> tuple[int, int, int]:
        """Return how many states were made and released, and how many steps there were."""
        return self.admitted, self.released, self.steps

    async def waiting(self) -> int:
        """Return how many requests wait for admission."""
        load = load_of(self)
        return 0 if load is None else load.waiting


@pyserve.deployment
@pyserve.continuous(max_running=1)
class Slow:
    """Runs one request at a time, so that the others wait in the replica."""

    def __init__(self, version: int) -> None:
        self.version = version

    def admit(self, steps: int) -> list[int]:
        return [steps]

    def step(self, states: list[list[int]]) -> list[Any]:
        time.sleep(_STEP_S)
        for state in states:
            state[0] -= 1
        return [Emit() if state[0] else Done(self.version) for state in states]

    async def waiting(self) -> int:
        """Return how many requests wait for admission."""
        load = load_of(self)
        return 0 if load is None else load.waiting

    async def pid(self) -> int:
        """Return which process this is."""
        return os.getpid()


@pyserve.deployment
@pyserve.continuous(max_running=4, max_waiting=8, budget=100)
class Counter(_Counting, echo_pb2_grpc.EchoServicer):
    """Steps on a thread."""

    Echo = pyserve.steps()
    EchoStream = pyserve.steps()


@pyserve.deployment
@pyserve.continuous(max_running=4, max_waiting=8, budget=100, step_in="process")
class Process(_Counting, echo_pb2_grpc.EchoServicer):
    """Steps in a process of its own, which is the only one that has the states."""

    Echo = pyserve.steps()
    EchoStream = pyserve.steps()

    async def tally(self) -> tuple[int, int, int]:
        assert not self.admitted, "nothing is admitted in the replica"
        load = load_of(self)
        return (0, 0, 0) if load is None else (load.running + load.parked, 0, load.steps)

    async def pid(self) -> int:
        """Return which process the replica is."""
        return os.getpid()

    async def stepper(self) -> int:
        """Return which process steps."""
        driver = find_driver(self)
        assert isinstance(driver, ProcessDriver)
        return driver.pid


@pyserve.deployment
@pyserve.continuous(max_running=4, max_waiting=8, budget=100)
class Engine(echo_pb2_grpc.EchoServicer):
    """Answers as ``Counter`` does, by an engine that batches by itself: a generator for each."""

    Echo = pyserve.steps()
    EchoStream = pyserve.steps()

    def __init__(self) -> None:
        self.closed = self.released = 0

    def cost(self, request: Any) -> int:
        return request.get("cost", 1) if isinstance(request, dict) else 1

    async def admit(self, request: Any) -> AsyncIterator[Any]:
        state = _State.of(request)
        try:
            while True:
                await asyncio.sleep(_STEP_S)
                result = state.advance()
                if isinstance(result, Failed):
                    raise result.exception
                yield result.values[0]
                if isinstance(result, Done):
                    return
        finally:
            self.closed += 1

    def release(self, _state: object) -> None:
        self.released += 1

    async def tally(self) -> tuple[int, int, int]:
        """Return how many states were made and released, and how many generators closed.

        A generator whose caller left at once is released without having run.
        """
        load = load_of(self)
        return 0 if load is None else load.admitted, self.released, self.closed

    async def waiting(self) -> int:
        """Return how many requests wait for admission."""
        load = load_of(self)
        return 0 if load is None else load.waiting


@dataclass(eq=False)
class _Tale:
    """The state of a long stream."""

    steps: int
    made: int = 0


@pyserve.deployment
@pyserve.continuous(max_running=32, resume_elsewhere=True)
class Tales:
    """Yields (version, number) for each step, which takes so long."""

    def __init__(self, version: int, step_s: float) -> None:
        self.version = version
        self.step_s = step_s
        self.resumed = self.released = self.admitted = 0

    def admit(self, steps: int) -> _Tale:
        self.admitted += 1
        return _Tale(steps)

    def step(self, states: list[_Tale]) -> list[Any]:
        time.sleep(self.step_s)
        for state in states:
            state.made += 1
        return [
            (Done if state.made == state.steps else Emit)((self.version, state.made))
            for state in states
        ]

    def release(self, _state: _Tale) -> None:
        self.released += 1

    def preempt(self, state: _Tale) -> tuple[int, int]:
        return state.steps, state.made

    def resume(self, snapshot: tuple[int, int]) -> _Tale:
        self.resumed += 1
        return _Tale(*snapshot)

    async def tally(self) -> tuple[int, int, int]:
        """Return how many states were admitted, resumed and released."""
        return self.admitted, self.resumed, self.released


tales = Tales.bind(1, 0.1)
two_tales = Tales.options(num_replicas=2).bind(1, 0.05)
app = Counter.bind()
engine = Engine.options(name="Counter").bind()
process = Process.options(name="Counter").bind()
two_processes = Process.options(name="Counter", num_replicas=2).bind()
slow = Slow.bind(1)
two = Slow.options(num_replicas=2, request_router_config={"max_attempts": 3}).bind(1)


@pyserve.deployment
@pyserve.continuous(max_running=32, budget=1_000)
class Costly:
    """Answers ``count`` steps with its process; a request costs what its ``cost`` says."""

    def __init__(self, *others: Any) -> None:
        self.others = others

    def cost(self, what: Any) -> int:
        request = what.request if isinstance(what, _State) else what
        return int(request.get("cost", 1))

    def admit(self, request: dict[str, int]) -> _State:
        return _State(request, request["count"])

    def step(self, states: list[_State]) -> list[Any]:
        time.sleep(_STEP_S)
        for state in states:
            state.left -= 1
        return [Emit(os.getpid()) if state.left else Done(os.getpid()) for state in states]


queued = Costly.options(
    name="Queued", max_ongoing_requests=1, max_queued_cost=100, num_replicas=1
).bind()
costly = Costly.options(num_replicas=2).bind(queued, Counter.bind())
