"""The options of ``@pyserve.continuous``."""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Literal

from pyserve.config.validation import option_error
from pyserve.errors import OptionError, OptionTypeError

Reserve = Literal["bound", "now"]
StepIn = Literal["thread", "loop", "process"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ContinuousOptions:
    """Limits of one continuously batched class.

    Attributes:
        max_running: Most states in one step, at least 1.
        budget: What the costs of all states that are held may come to, in the unit of ``cost``;
            ``None``: they are not bounded.
        max_waiting: Most requests that wait in a replica, at least 0; more are refused.
        step_ms: How long a step should take, in milliseconds: fewer states run in one where the
            learnt time says so, never less than one. ``None``: as long as it takes.
        reserve: ``"bound"`` sets aside what a state may become; ``"now"`` what it costs now, and
            preempts states when that grows beyond the budget.
        isolate: Whether a step that raised is run again in halves until only the states that
            are to blame fail. ``step`` must bear being run again with the same states.
        max_keys: Most keys whose states are held at once, at least 1.
        slack: Values that may wait in the replica for a caller who does not read, before its state
            is parked, at least 1. Buffers on the way to the caller come on top.
        park_s: Seconds after which a parked state is preempted; ``None``: it keeps its memory.
        max_preempts: How often one request may be preempted for others, at least 0.
        step_in: Where ``step`` runs: on a thread of its own, on the replica's event loop, or in a
            child process of the replica. An ``async def step`` runs on the loop.
        resume_elsewhere: Whether the states of a replica that drains go on at another one, from
            the snapshots that ``preempt`` makes.
    """

    max_running: int = 32
    budget: float | None = None
    max_waiting: int = 1000
    step_ms: float | None = None
    reserve: Reserve = "bound"
    isolate: bool = False
    max_keys: int = 8
    slack: int = 64
    park_s: float | None = 10.0
    max_preempts: int = 3
    step_in: StepIn = "thread"
    resume_elsewhere: bool = False

    def __post_init__(self) -> None:
        for name, least in _COUNTS.items():
            count: object = getattr(self, name)
            if isinstance(count, bool) or not isinstance(count, int) or count < least:
                text = f"continuous: {name} must be an int of at least {least}, not {count!r}"
                raise option_error(text, count, int)
        for name in ("budget", "step_ms", "park_s"):
            _check_positive(name, getattr(self, name), may_be_zero=name == "park_s")
        for name in ("isolate", "resume_elsewhere"):
            is_on: object = getattr(self, name)
            if not isinstance(is_on, bool):
                text = f"continuous: {name} must be True or False, not {is_on!r}"
                raise OptionTypeError(text)
        for name, choices in _CHOICES.items():
            value: object = getattr(self, name)
            if value not in choices:
                known = " or ".join(f'"{each}"' for each in choices)
                raise OptionError(f"continuous: {name} must be {known}, not {value!r}")


def check_names(given: Iterable[str]) -> None:
    """Check that options have names that there are.

    Raises:
        OptionTypeError: One has another name.
    """
    known = [field.name for field in fields(ContinuousOptions)]
    for name in given:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"there is: {', '.join(known)}"
            raise OptionTypeError(f"@pyserve.continuous has no option {name!r}; {hint}")


_COUNTS = {"max_running": 1, "max_waiting": 0, "max_keys": 1, "slack": 1, "max_preempts": 0}
_CHOICES = {"reserve": ("bound", "now"), "step_in": ("thread", "loop", "process")}


def _check_positive(name: str, value: object, *, may_be_zero: bool) -> None:
    if value is None:
        return
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not (0 < value < math.inf or (may_be_zero and value == 0)):  # type: ignore[operator]
        least = "at least 0" if may_be_zero else "more than 0"
        text = f"continuous: {name} must be a number of {least}, or None, not {value!r}"
        raise option_error(text, value, int, float)
