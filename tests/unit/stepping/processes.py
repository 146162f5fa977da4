"""Models that step in a process of their own; in a module, which that process can import."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path
from typing import Any

from pyserve.stepping.decorator import continuous
from pyserve.stepping.values import Done, Emit
from tests.unit.stepping.models import Counting, Snapping, State, Work, wait_admitted


class Reporting(Snapping):
    """Writes what happens in its process to a file, a line for each."""

    def __init__(self, folder: Path, hangs_with: int = 1) -> None:
        super().__init__()
        self.folder = folder
        self.hangs_with = hangs_with

    def setup(self) -> None:
        self.note(f"pid {os.getpid()}")

    def note(self, line: str) -> None:
        with (self.folder / "lines").open("a") as file:
            file.write(line + "\n")

    def lines(self, start: str = "") -> list[str]:
        """Return the lines so far; for the test's own process."""
        path = self.folder / "lines"
        return [line for line in path.read_text().splitlines() if line.startswith(start)]

    def admit(self, work: Work) -> State:
        self.note(f"admit {work.name}")
        return super().admit(work)

    def resume(self, snapshot: tuple[Work, int]) -> State:
        self.note(f"resume {snapshot[0].name}")
        return super().resume(snapshot)

    def release(self, state: State) -> None:
        self.note(f"release {state.work.name}")
        super().release(state)

    def pid(self) -> int:
        """Return the process that steps."""
        return int(self.lines("pid")[-1].split()[1])


@continuous(step_in="process", max_running=4, slack=4, park_s=None, resume_elsewhere=True)
class Process(Reporting):
    """Counts; some requests make it do something else.

    The names of requests: ``hang`` holds a step up until a file ``go`` is there, ``odd`` has a
    value that cannot be pickled, ``endless`` never ends.

    Args:
        folder: For files.
        hangs_with: How many states a step has that is held up; smaller ones do nothing.
    """

    def step(self, states: list[State]) -> list[Any]:
        names = {state.work.name for state in states}
        if "hang" in names and not (self.folder / "go").exists():
            if len(states) < self.hangs_with:
                time.sleep(0.001)
                return [None for _ in states]
            self.note("hanging")
            while not (self.folder / "go").exists():
                time.sleep(0.001)
        if "endless" in names:
            return [Emit(os.getpid()) for _ in states]
        results = Counting.step(self, states)
        return [
            Done(threading.Lock()) if state.work.name == "odd" else result
            for state, result in zip(states, results, strict=True)
        ]


@continuous(step_in="process", max_running=1)
class Narrow(Process):
    """Runs one request at a time."""


@continuous(step_in="process")
class Broken(Process):
    """Cannot begin."""

    def setup(self) -> None:
        raise LookupError("no weights")


@continuous(step_in="process")
class Threaded(Process):
    """Has a thread that raises."""

    def setup(self) -> None:
        super().setup()
        thread = threading.Thread(target=_raise)
        thread.start()
        thread.join()


@continuous(step_in="process")
class Awaiting(Process):
    """Has an ``async def admit``."""

    async def admit(self, work: Work) -> State:  # type: ignore[override]
        return super().admit(work)


@continuous(step_in="process", max_running=1)
class Admitting(Process):
    """Has an ``async def admit`` that takes a while."""

    async def admit(self, work: Work) -> State:  # type: ignore[override]
        self.note(f"begin {work.name}")
        await wait_admitted(work)
        return super().admit(work)


class Refusing(Exception):
    """An exception whose constructor takes something else than its ``args``."""

    def __init__(self, first: str, second: object) -> None:
        super().__init__(f"{first}{second if isinstance(second, str) else ''}")
        self.second = second


@continuous(step_in="process")
class Raising(Process):
    """Raises in a step."""

    def step(self, states: list[State]) -> list[Any]:
        name = states[0].work.name
        if name == "odd":
            raise Refusing("no", "thing")
        if name == "locked":
            raise Refusing("locked", threading.Lock())
        raise KeyError(name)


class OddRequest:
    """A request that can be pickled, and not unpickled."""

    def __reduce__(self) -> Any:
        return _raise, ()


def _raise() -> None:
    raise LookupError("no request")


@continuous(step_in="process")
class Leaving(Process):
    """Its ``cost`` of a state raises what ends a thread."""

    def cost(self, what: Any) -> float:
        if isinstance(what, State):
            raise SystemExit(3)
        return 1.0
