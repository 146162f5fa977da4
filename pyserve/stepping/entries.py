"""A request on its way through the scheduler, and all of them at one moment."""

from __future__ import annotations

import math
from collections.abc import Hashable
from dataclasses import dataclass
from enum import Enum
from typing import Any, Generic, TypeVar

Call = TypeVar("Call")


class Phase(Enum):
    """Where a request is."""

    WAITING = "waiting"
    ADMITTING = "admitting"  # Its state is being made.
    RUNNING = "running"
    PARKED = "parked"  # Its reader is slow: it keeps its state and takes part in no step.
    AWAY = "away"  # Preempted because its reader is slow; waits for the reader alone.
    ENDED = "ended"


class End(Enum):
    """Why the scheduler ends a request that has not ended by itself."""

    CANCELLED = "cancelled"
    EXPIRED = "expired"  # Its deadline has passed.
    EXHAUSTED = "exhausted"  # It does not fit into the budget any more.
    DRAINED = "drained"  # The replica ends.


class Refusal(Enum):
    """Why a request is not taken at all."""

    TOO_LARGE = "too large"  # It costs more than the whole budget.
    FULL = "full"  # As many wait as may.
    DRAINING = "draining"


class Entry(Generic[Call]):
    """One request, from its arrival to its end.

    Args:
        call: Who waits for it; opaque here.
        client: Requests of different clients take turns.
        priority: Higher ones are admitted before lower ones, and preempted after them.
        deadline: When the caller stops to wait; infinite: never.
        key: Only states with equal keys share a step.
        cost: What it costs now.
        bound: What it may come to cost, at least ``cost``.

    Attributes:
        arrival: Its number in order of arrival.
        phase: Where it is.
        state: What ``admit`` returned, while it is held.
        snapshot: What ``preempt`` returned, until it is resumed.
        preempts: How often it was preempted for others.
        parked_at: Since when it is parked.
    """

    __slots__ = (
        "arrival",
        "bound",
        "call",
        "client",
        "cost",
        "deadline",
        "key",
        "parked_at",
        "phase",
        "preempts",
        "priority",
        "reserved",
        "snapshot",
        "state",
        "stopped",
        "was_charged",
    )

    def __init__(
        self,
        call: Call,
        *,
        client: str = "",
        priority: int = 0,
        deadline: float = math.inf,
        key: Hashable = None,
        cost: float = 1.0,
        bound: float = 0.0,
    ) -> None:
        self.call = call
        self.client = client
        self.priority = priority
        self.deadline = deadline
        self.key = key
        self.cost = cost
        self.bound = max(bound, cost)
        self.arrival = 0
        self.phase = Phase.ENDED
        self.state: Any = None
        self.snapshot: Any = None
        self.preempts = 0
        self.parked_at = math.inf
        self.reserved = 0.0  # What it takes of the budget while it is held.
        self.stopped: End | None = None  # It is to be ended between two steps.
        self.was_charged = False  # Its client's turn has been taken.


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """The requests of a scheduler at one moment.

    Attributes:
        running, parked: States.
        waiting: Requests without a state.
        waiting_cost: What these cost.
        used: What the held states take of the budget.
        step_s: What a step is expected to take, in seconds; 0 while nothing is known.
        step_least_s, step_most_s: The same with one state, and with ``max_running``.
        wait_s: How long a new request of the mean cost would wait for a state, in seconds; 0 where
            it would not, or nothing is known.
        steps, admitted, preempted: How many there have been.
    """

    running: int
    parked: int
    waiting: int
    waiting_cost: float
    used: float
    step_s: float
    step_least_s: float = 0.0
    step_most_s: float = 0.0
    wait_s: float
    steps: int
    admitted: int
    preempted: int
