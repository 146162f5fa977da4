"""Models for the tests of continuous batching, which check how they are used."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Any

from pyserve.stepping.values import Done, Emit, Failed


@dataclass(frozen=True)
class Work:
    """A request that takes ``steps`` steps and has one value after each.

    Attributes:
        name: Part of its values.
        steps: How many it takes.
        cost: What it costs at first.
        grows: What each step adds to that.
        key: Which others it may share a step with.
        fails_at: The step, from 1, after which it fails; 0: none.
        poison_at: The step, from 1, in which it makes the whole step raise; 0: none.
        admits_s: How long its admission takes, where that is awaited; infinite: it hangs.
        insists: Its admission, when it is cancelled, returns a state all the same.
    """

    name: str
    steps: int = 1
    cost: float = 1.0
    grows: float = 0.0
    key: Hashable = None
    fails_at: int = 0
    poison_at: int = 0
    admits_s: float = 0.0
    insists: bool = False


@dataclass(eq=False)
class State:
    work: Work
    made: int = 0
    released: bool = False


@dataclass
class Counting:
    """Counts what each request has had, and insists that states are used as promised."""

    states: list[State] = field(default_factory=list)
    steps: int = 0
    resumed: int = 0

    def cost(self, what: Work | State | tuple[Work, int]) -> float:
        work, made = _parts(what)
        return work.cost + work.grows * made

    def bound(self, work: Work) -> float:
        return work.cost + work.grows * work.steps

    def key(self, work: Work) -> Hashable:
        return work.key

    def admit(self, work: Work) -> State:
        state = State(work)
        self.states.append(state)
        return state

    def step(self, states: list[State]) -> list[Any]:
        assert states, "a step has states"
        assert len(set(map(id, states))) == len(states)
        assert not any(state.released for state in states)
        assert len({state.work.key for state in states}) == 1
        for state in states:
            if state.work.poison_at == state.made + 1:
                raise ValueError(f"poison {state.work.name}")
        self.steps += 1
        return [self._advance(state) for state in states]

    def release(self, state: State) -> None:
        assert not state.released, "each state is released once"
        state.released = True

    @property
    def held(self) -> list[State]:
        return [state for state in self.states if not state.released]

    def _advance(self, state: State) -> Any:
        state.made += 1
        work = state.work
        if work.fails_at == state.made:
            return Failed(KeyError(work.name))
        value = f"{work.name}{state.made}"
        return Done(value) if state.made >= work.steps else Emit(value)


class Slow(Counting):
    """One whose admissions take a while."""

    async def admit(self, work: Work) -> State:  # type: ignore[override]
        await wait_admitted(work)
        return super().admit(work)


class Snapping(Counting):
    """One whose states can be put away."""

    def preempt(self, state: State) -> tuple[Work, int]:
        assert not state.released
        return state.work, state.made

    def resume(self, snapshot: tuple[Work, int]) -> State:
        self.resumed += 1
        state = State(*snapshot)
        self.states.append(state)
        return state


async def wait_admitted(work: Work) -> None:
    """Wait as long as the admission of ``work`` takes."""
    try:
        if work.admits_s == math.inf:
            await asyncio.get_running_loop().create_future()
        await asyncio.sleep(work.admits_s)
    except asyncio.CancelledError:
        if not work.insists:
            raise


def values_of(work: Work) -> list[str]:
    """Return what a caller of ``work`` gets that does not fail."""
    return [f"{work.name}{number + 1}" for number in range(work.steps)]


def _parts(what: Work | State | tuple[Work, int]) -> tuple[Work, int]:
    if isinstance(what, Work):
        return what, 0
    if isinstance(what, State):
        return what.work, what.made
    return what
