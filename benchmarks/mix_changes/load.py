"""Plays the phases of a case: open loops by their schedule, closed loops by their callers."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

from benchmarks.mix_changes.cases import Case, Phase
from benchmarks.mix_changes.doors import Call

# A call that waits longer than this beside its own work is late. With it, replicas that answer a
# tenth less than what comes are late for a twentieth of the shortest phase (three seconds).
PATIENCE_S = 0.25
# A caller that was refused comes again after this time, so that refusals do not load the mesh.
_PAUSE_S = 0.05


@dataclass(slots=True)
class Answer:
    """How one call went; times are those of the event loop.

    Attributes:
        due_s: When it was to begin.
        work_s: How long it takes by itself.
        end_s: When its answer or its error came; infinite: it was still open at the end.
        error: The type of the exception; empty where there was none.
    """

    due_s: float
    work_s: float
    end_s: float = math.inf
    error: str = ""

    @property
    def is_right(self) -> bool:
        """Whether the right answer came."""
        return not self.error and self.end_s < math.inf


@dataclass(frozen=True)
class Played:
    """One phase as it went.

    Attributes:
        begin_s: When it began.
        end_s: When its last call had begun.
        over_s: When the whole case was over, and open calls were given up.
        answers: One for each call.
    """

    begin_s: float
    end_s: float
    over_s: float
    answers: list[Answer]


@dataclass(frozen=True)
class Play:
    """A case as it went under one policy.

    Attributes:
        phases: In their order.
        generator_share: Of one core, what the load generator took.
    """

    phases: tuple[Played, ...]
    generator_share: float


@dataclass
class _Player:
    call: Call
    # Bounded: an open loop has ended after its arrivals, a closed one has one for each caller.
    open_calls: dict[asyncio.Task[None], Answer] = field(default_factory=dict)

    def begin(self, due_s: float, ms: float) -> tuple[asyncio.Task[None], Answer]:
        answer = Answer(due_s, ms / 1e3)
        task = asyncio.create_task(self._await(answer, ms))
        self.open_calls[task] = answer
        task.add_done_callback(self.open_calls.pop)
        return task, answer

    async def _await(self, answer: Answer, ms: float) -> None:
        try:
            await self.call(ms)
        except Exception as error:
            answer.error = type(error).__name__
        answer.end_s = asyncio.get_running_loop().time()

    async def open_loop(self, phase: Phase, due_s: list[float], work: Iterator[float]) -> Played:
        loop = asyncio.get_running_loop()
        begin_s = loop.time()
        answers = []
        for after_s in due_s:
            if (wait_s := begin_s + after_s - loop.time()) > 0:
                await asyncio.sleep(wait_s)
            answers.append(self.begin(begin_s + after_s, next(work))[1])
        end_s = begin_s + phase.seconds
        await asyncio.sleep(max(0.0, end_s - loop.time()))
        return Played(begin_s, end_s, math.inf, answers)

    async def closed_loop(self, phase: Phase, work: Iterator[float]) -> Played:
        loop = asyncio.get_running_loop()
        begin_s = loop.time()
        end_s = begin_s + phase.seconds
        answers: list[Answer] = []

        async def caller() -> None:
            while loop.time() < end_s and (not phase.calls or len(answers) < phase.calls):
                task, answer = self.begin(loop.time(), next(work))
                answers.append(answer)
                await asyncio.wait((task,), timeout=max(0.0, end_s - loop.time()))
                if not task.done():
                    # It outlasts the phase: it goes on, and the next phase begins all the same.
                    return
                if answer.error:
                    await asyncio.sleep(_PAUSE_S)

        await asyncio.gather(*(caller() for _ in range(phase.callers)))
        return Played(begin_s, min(end_s, loop.time()), math.inf, answers)

    async def finish(self) -> None:
        """Wait for as long as an open call may still be in time, then give them up."""
        loop = asyncio.get_running_loop()
        longest_s = max((each.work_s for each in self.open_calls.values()), default=0.0)
        end_s = loop.time() + longest_s + PATIENCE_S
        while self.open_calls and (left_s := end_s - loop.time()) > 0:
            await asyncio.wait(set(self.open_calls), timeout=left_s)
        rest = list(self.open_calls)
        for task in rest:
            task.cancel()
        await asyncio.gather(*rest, return_exceptions=True)


async def play(case: Case, call: Call, seed: int) -> Play:
    """Play a case with the random numbers of a seed."""
    player, phases = _Player(call), []
    cpu_s, wall_s = time.process_time(), time.monotonic()
    for number, phase in enumerate(case.phases):
        work = phase.work.draws(case.draws(seed, number, "work"))
        if phase.rate:
            due_s = phase.arrivals_s(case.draws(seed, number, "arrivals"))
            phases.append(await player.open_loop(phase, due_s, work))
        else:
            phases.append(await player.closed_loop(phase, work))
    share = (time.process_time() - cpu_s) / (time.monotonic() - wall_s)
    await player.finish()
    over_s = asyncio.get_running_loop().time()
    over = (Played(each.begin_s, each.end_s, over_s, each.answers) for each in phases)
    return Play(tuple(over), share)
