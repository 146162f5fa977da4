"""Classes whose own engine batches, for the tests: simulated engines on the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any

from pyserve.stepping.values import Done, Emit, Failed
from tests.unit.stepping.models import State, Work

STEP_S = 1.0


@dataclass
class Yielding:
    """Yields a value for each step of a request, one a second, as ``AsyncLLM.generate`` does."""

    running: list[Work] = field(default_factory=list)
    released: list[Any] = field(default_factory=list)
    admitted: int = 0
    running_max: int = 0

    def cost(self, work: Work) -> float:
        return work.cost

    def bound(self, work: Work) -> float:
        return work.cost + work.grows * work.steps

    async def admit(self, work: Work) -> AsyncIterator[str]:
        self.admitted += 1
        self.running.append(work)
        self.running_max = max(self.running_max, len(self.running))
        try:
            for number in range(1, work.steps + 1):
                await asyncio.sleep(STEP_S)
                if number == work.fails_at:
                    raise KeyError(work.name)
                yield f"{work.name}{number}"
        finally:
            self.running.remove(work)

    def release(self, state: Any) -> None:
        self.released.append(state)


@dataclass
class Calling:
    """Calls back with what each step of a request gives, as engines with a thread do."""

    states: list[State] = field(default_factory=list)
    wanted: list[bool] = field(default_factory=list)
    tasks: set[asyncio.Task[None]] = field(default_factory=set)

    def cost(self, what: Work | State) -> float:
        if isinstance(what, Work):
            return what.cost
        return what.work.cost + what.work.grows * what.made

    async def admit(self, work: Work, emit: Callable[[Any], bool]) -> State:
        state = State(work)
        self.states.append(state)
        task = asyncio.get_running_loop().create_task(self._run(state, emit))
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)
        return state

    def release(self, state: State) -> None:
        assert not state.released, "each state is released once"
        state.released = True

    @property
    def held(self) -> list[State]:
        return [state for state in self.states if not state.released]

    async def _run(self, state: State, emit: Callable[[Any], bool]) -> None:
        work = state.work
        while state.made < work.steps and not state.released:
            await asyncio.sleep(STEP_S)
            state.made += 1
            result: Any = Emit(f"{work.name}{state.made}")
            if state.made == work.fails_at:
                result = Failed(KeyError(work.name))
            elif state.made == work.steps:
                result = Done(*result.values)
            self.wanted.append(emit(result))
