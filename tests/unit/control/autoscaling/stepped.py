"""Replicas of a continuously batched class, simulated step by step on virtual time."""

from __future__ import annotations

import heapq
import random
from collections import deque
from dataclasses import dataclass, field
from typing import Any

from pyserve.config import AutoscalingConfig
from pyserve.control.autoscaling.latency import Fleet
from pyserve.control.autoscaling.scaler import Scaler
from pyserve.control.autoscaling.value_times import StepReport
from pyserve.types import ApplicationName, DeploymentKey, DeploymentName, ReplicaId

KEY = DeploymentKey(ApplicationName("shop"), DeploymentName("Model"))
_LOOK_S = 0.25


@dataclass(eq=False)
class _Request:
    arrived: float
    left: int
    value_at: float | None = None


@dataclass
class _Replica:
    """Steps all its states together; a step takes ``base_s`` and ``each_s`` for each state."""

    id: ReplicaId
    ready_at: float
    places: int
    base_s: float
    each_s: float
    running: list[_Request] = field(default_factory=list)
    waiting: deque[_Request] = field(default_factory=deque)
    calls: int = 0
    first: list[float] = field(default_factory=list)
    further: list[float] = field(default_factory=list)
    first_s: float = 0.0
    further_s: float = 0.0
    steps: bool = False

    @property
    def held(self) -> int:
        return len(self.running) + len(self.waiting)

    def begin(self) -> float:
        while self.waiting and len(self.running) < self.places:
            self.running.append(self.waiting.popleft())
        self.steps = bool(self.running)
        return self.base_s + self.each_s * len(self.running)

    def end(self, now: float) -> None:
        for each in self.running:
            each.left -= 1
            if each.value_at is None:
                self.first.append(now - each.arrived)
                self.first_s += now - each.arrived
            else:
                self.further.append(now - each.value_at)
                self.further_s += now - each.value_at
            each.value_at = now
        self.running = [each for each in self.running if each.left]

    def report(self, now: float) -> StepReport:
        unanswered = [each for each in (*self.running, *self.waiting) if each.value_at is None]
        return StepReport(
            first_values=len(self.first),
            first_value_s=self.first_s,
            next_values=len(self.further),
            next_value_s=self.further_s,
            unanswered=len(unanswered),
            unanswered_s=sum(now - each.arrived for each in unanswered),
            fullness=self._fullness(),
        )

    def _fullness(self) -> float:
        """Return what ``pyserve.replica.step_reports`` does."""
        if not self.running:
            return 0.0
        full_s = self.base_s + self.each_s * self.places
        step_s = self.base_s + self.each_s * len(self.running)
        share = len(self.running) / self.places * full_s / step_s
        return share + len(self.waiting) / self.places


class Stepped:
    """A deployment under a load, and its scaler.

    Args:
        seed: Of arrivals and lengths.
        replicas: How many there are at first.
        places: ``max_running``.
        base_s, each_s: How long a step takes: at all, and for each state.
        steps: The mean number of steps that a request needs.
        start_s: How long a replica takes to start.
        options: Of ``autoscaling_config``.
    """

    def __init__(
        self,
        *,
        seed: int = 0,
        replicas: int = 1,
        places: int = 16,
        base_s: float = 0.04,
        each_s: float = 0.002,
        steps: int = 10,
        start_s: float = 3.0,
        **options: Any,
    ) -> None:
        defaults = {"max_replicas": 20, "downscale_delay_s": 20.0, "look_back_period_s": 20.0}
        self.config = AutoscalingConfig.of("autoscaling_config", {**defaults, **options})
        self.scaler = Scaler(KEY, self.config, replicas, 0.0)
        self.now = 0.0
        self.changes: list[tuple[float, int]] = []
        self._shape = places, base_s, each_s
        self._mean_steps = steps
        self._start_s = start_s
        self._random = random.Random(seed)
        self._made = 0
        self._replicas: list[_Replica] = []
        self._events: list[tuple[float, int, _Replica]] = []
        self._offered = 0
        self._parked: deque[_Request] = deque()
        self._resize(replicas, 0.0)

    @property
    def number(self) -> int:
        """How many replicas there are, or start."""
        return len(self._replicas)

    def run(self, seconds: float, rate: float) -> int:
        """Let requests come; return how many replicas there are at the end."""
        until = self.now + seconds
        arrival = self._next_arrival(rate)
        look = self.now + _LOOK_S
        while self.now < until:
            step = self._events[0][0] if self._events else until
            self.now = min(arrival, look, step, until)
            if self.now == step and self._events:
                replica = heapq.heappop(self._events)[2]
                replica.end(self.now)
                self._begin(replica)
            elif self.now == arrival:
                self._arrive()
                arrival = self._next_arrival(rate)
            elif self.now == look:
                self._look()
                look = self.now + _LOOK_S
        return self.number

    def _next_arrival(self, rate: float) -> float:
        return self.now + self._random.expovariate(rate) if rate else float("inf")

    def _arrive(self) -> None:
        self._offered += 1
        left = self._random.randint(1, 2 * self._mean_steps - 1)
        self._parked.append(_Request(self.now, left))
        self._hand_over()

    def _hand_over(self) -> None:
        ready = [each for each in self._replicas if each.ready_at <= self.now]
        while ready and self._parked:
            replica = min(ready, key=lambda each: each.held)
            replica.waiting.append(self._parked.popleft())
            replica.calls += 1
            if not replica.steps:
                self._begin(replica)

    def _begin(self, replica: _Replica) -> None:
        took_s = replica.begin()
        if replica.steps:
            self._made += 1
            heapq.heappush(self._events, (self.now + took_s, self._made, replica))

    def _look(self) -> None:
        self._hand_over()
        signals, now = self.scaler.signals, self.now
        running = [each for each in self._replicas if each.ready_at <= now]
        for each in running:
            signals.on_replica(
                each.id,
                ongoing=each.held,
                calls=each.calls,
                busy_s=0.0,
                now=now,
                cost=float(each.held),
                steps=each.report(now) if each.calls else None,
            )
        signals.on_router("ingress", parked=len(self._parked), offered=self._offered, now=now)
        signals.keep_replicas({each.id for each in running}, now)
        fleet = Fleet([each.id for each in running], len(self._replicas))
        target = self.scaler.decide(fleet, now).target
        if target != len(self._replicas):
            self.changes.append((now, target))
            self._resize(target, now + self._start_s)

    def _resize(self, number: int, ready_at: float) -> None:
        while len(self._replicas) < number:
            self._made += 1
            places, base_s, each_s = self._shape
            id_ = ReplicaId(f"r{self._made}")
            self._replicas.append(_Replica(id_, ready_at, places, base_s, each_s))
        # Those that leave finish what they hold, which the others do not get.
        del self._replicas[number:]
