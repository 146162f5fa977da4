"""Policies of autoscaling on loads of virtual time: ``python -m benchmarks.autoscaling_sim``.

Calls come one by one, wait for a place in a replica, and are worked on; replicas take a while to
start. The shipping policies are those that a mesh runs (``pyserve.control.autoscaling``), beside
Ray Serve's rule with its own delays, the rule of the Kubernetes autoscaler, and an oracle that
knows the load of a cold start ahead. The same arguments give the same numbers on any machine.
"""

from __future__ import annotations

import argparse
import heapq
import json
import math
import random
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Protocol

from pyserve.config import AutoscalingConfig
from pyserve.control.autoscaling.latency import Fleet, servers_for
from pyserve.control.autoscaling.scaler import Scaler
from pyserve.types import ApplicationName, DeploymentKey, DeploymentName, ReplicaId

RESULTS = Path(__file__).parent / "results" / "autoscaling.json"
# A replica works on so many calls at once, and takes so long for one (exponential).
PLACES, SERVICE_S = 4, 0.05
# At least 99 of 100 calls should wait for a place no longer than this.
TARGET_WAIT_S, SHARE_BEYOND = 0.1, 0.01
REPLICAS_MAX = 60
# How often a policy looks; a mesh looks up to ten times a second.
TICK_S = 0.5
# So long after a jump that nobody could foresee, besides the cold start, calls may wait: as long
# as the calls that have piled up take.
_RECOVERY_SHARE = 2.5
_KEY = DeploymentKey(ApplicationName("sim"), DeploymentName("Model"))

Rate = Callable[[float], float]


@dataclass(frozen=True)
class Scenario:
    """A load.

    Attributes:
        name: In the results.
        seconds: How long it lasts.
        rate: Calls per second at a time.
        jumps: When it changes without a sign before.
    """

    name: str
    seconds: float
    rate: Rate
    jumps: tuple[float, ...] = ()


def scenarios(scale: float = 1.0) -> list[Scenario]:
    """Return the loads; ``scale`` shortens them all."""
    minute = 60.0 * scale
    saw_s = 4 * minute
    day_s = 40 * minute

    def day(now: float) -> float:
        return 150 - 130 * math.cos(2 * math.pi * now / day_s)

    return [
        Scenario("step", 15 * minute, _step(5 * minute), (5 * minute,)),
        Scenario("ramp", 20 * minute, _ramp(4 * minute, 14 * minute)),
        Scenario("spike", 15 * minute, _spike(5 * minute, 2 * minute), (5 * minute,)),
        # Nothing comes before its first tooth, whose rise is new.
        Scenario("sawtooth", 20 * minute, lambda now: 60 + 400 * ((now % saw_s) / saw_s), (0.0,)),
        Scenario("day", day_s, day),
    ]


def _step(at: float) -> Rate:
    return lambda now: 60.0 if now < at else 480.0


def _ramp(begin: float, end: float) -> Rate:
    return lambda now: 60 + 420 * min(max((now - begin) / (end - begin), 0.0), 1.0)


def _spike(at: float, length_s: float) -> Rate:
    return lambda now: 480.0 if at <= now < at + length_s else 60.0


@dataclass(frozen=True)
class Outcome:
    """The result of a policy under a load.

    Attributes:
        scenario, cold_start_s, policy: What was played.
        replica_seconds: From the start of each replica to its end.
        of_oracle: The same as a multiple of the oracle's.
        beyond_target: Share of the calls that waited longer than the target.
        beyond_target_foreseeable: The same without those that came in and right after a jump of
            the load that nobody could foresee, as long as new replicas could not be there.
        overshoot: Most replicas that ran beyond those that the load needed, as a share of the most
            that it needed.
        undershoot: The same of replicas that were missing.
    """

    scenario: str
    cold_start_s: float
    policy: str
    replica_seconds: float
    of_oracle: float
    beyond_target: float
    beyond_target_foreseeable: float
    overshoot: float
    undershoot: float


class Policy(Protocol):
    """Decides how many replicas there should be."""

    def target(self, cluster: Cluster, now: float) -> int: ...


# Replicas and calls.


@dataclass(eq=False)
class _Replica:
    name: ReplicaId
    begun: float
    ready: float
    ongoing: int = 0
    calls: int = 0
    busy_s: float = 0.0
    busy_until: float = 0.0
    draining: bool = False

    def pass_to(self, now: float) -> None:
        self.busy_s += self.ongoing * (now - self.busy_until)
        self.busy_until = now


class Cluster:
    """Replicas that start, work and drain.

    Args:
        cold_start_s: From the start of a replica to its first call.
        replicas: Those that serve at the beginning.
    """

    def __init__(self, cold_start_s: float, replicas: int, seed: int) -> None:
        self.cold_start_s = cold_start_s
        self.waiting: deque[float] = deque()
        self.offered = 0
        self.target = replicas
        self.replica_seconds = 0.0
        self.waits: list[tuple[float, float]] = []
        self._draw = random.Random(seed)
        self._live: list[_Replica] = []
        self._ends: list[tuple[float, int, _Replica]] = []
        self._count = 0
        for _ in range(replicas):
            self._start(0.0, ready=0.0)

    def serving(self, now: float) -> list[_Replica]:
        """Return the replicas that take calls."""
        return [each for each in self._live if each.ready <= now and not each.draining]

    def starting(self, now: float) -> list[_Replica]:
        """Return those that will."""
        return [each for each in self._live if each.ready > now]

    def arrive(self, now: float) -> None:
        """A call comes."""
        self.offered += 1
        self.waiting.append(now)
        self.place(now)

    def place(self, now: float) -> None:
        """Give the waiting calls to the replicas that have room, the idlest replica first."""
        serving = self.serving(now)
        while self.waiting and serving:
            best = min(serving, key=lambda each: each.ongoing)
            if best.ongoing >= PLACES:
                return
            begun = self.waiting.popleft()
            self.waits.append((begun, now - begun))
            best.pass_to(now)
            best.ongoing += 1
            best.calls += 1
            self._count += 1
            end = now + self._draw.expovariate(1 / SERVICE_S)
            heapq.heappush(self._ends, (end, self._count, best))

    def next_end(self) -> float:
        """Return when the next call ends."""
        return self._ends[0][0] if self._ends else math.inf

    def end_one(self) -> None:
        """Let that call end."""
        now, _, replica = heapq.heappop(self._ends)
        replica.pass_to(now)
        replica.ongoing -= 1
        if replica.draining and not replica.ongoing:
            self._stop(replica, now)
        self.place(now)

    def scale(self, target: int, now: float) -> None:
        """Start what is missing, or end what is too much: those that start first."""
        self.target = target
        live = [each for each in self._live if not each.draining]
        for _ in range(target - len(live)):
            self._start(now, ready=now + self.cold_start_s)
        surplus = sorted(live, key=lambda each: (-max(each.ready - now, 0), each.ongoing))
        for replica in surplus[: max(len(live) - target, 0)]:
            replica.draining = True
            if not replica.ongoing:
                self._stop(replica, now)

    def end(self, now: float) -> None:
        """Count what is still there."""
        for replica in list(self._live):
            self._stop(replica, now)

    def _start(self, now: float, *, ready: float) -> None:
        self._count += 1
        self._live.append(_Replica(ReplicaId(f"r{self._count}"), now, ready, busy_until=now))

    def _stop(self, replica: _Replica, now: float) -> None:
        self._live.remove(replica)
        self.replica_seconds += now - replica.begun


# Policies.


class Shipping:
    """The policy that a mesh runs, with the signals that it gets."""

    def __init__(self, config: AutoscalingConfig, cold_start_s: float) -> None:
        self._scaler = Scaler(_KEY, config, 1, 0.0)
        self._cold_start_s = cold_start_s

    def target(self, cluster: Cluster, now: float) -> int:
        serving = cluster.serving(now)
        signals = self._scaler.signals
        signals.on_router("ingress", parked=len(cluster.waiting), offered=cluster.offered, now=now)
        signals.keep_replicas({each.name for each in serving}, now)
        for each in serving:
            each.pass_to(now)
            signals.on_replica(
                each.name, ongoing=each.ongoing, calls=each.calls, busy_s=each.busy_s, now=now
            )
        fleet = Fleet(
            running=[each.name for each in serving],
            target=cluster.target,
            starting_since=[each.begun for each in cluster.starting(now)],
            ready_after_s=self._cold_start_s,
            ongoing_max=PLACES,
        )
        return self._scaler.decide(fleet, now).target


class Kubernetes:
    """The horizontal pod autoscaler's rule, with its defaults.

    A ratio within a tenth of 1 changes nothing, it looks every 15 s, growth is at most to twice as
    many or by four, and the most of the last five minutes is what shrinking goes down to.
    """

    def __init__(self, ongoing: float) -> None:
        self._ongoing = ongoing
        self._next = 0.0
        self._wanted: deque[tuple[float, int]] = deque()
        self._sums = [0.0, 0.0]

    def target(self, cluster: Cluster, now: float) -> int:
        serving = cluster.serving(now)
        self._sums[0] += len(cluster.waiting) + sum(each.ongoing for each in serving)
        self._sums[1] += 1
        if now < self._next:
            return cluster.target
        total, self._sums = self._sums[0] / self._sums[1], [0.0, 0.0]
        self._next = now + 15
        ratio = total / self._ongoing / max(len(serving), 1)
        wanted = cluster.target
        if abs(ratio - 1) > 0.1:
            wanted = math.ceil(total / self._ongoing)
        wanted = min(wanted, max(2 * cluster.target, cluster.target + 4), REPLICAS_MAX)
        self._wanted.append((now, max(wanted, 1)))
        while self._wanted[0][0] < now - 300:
            self._wanted.popleft()
        return max(each for _, each in self._wanted) if wanted < cluster.target else wanted


class Oracle:
    """Knows the load until a replica that starts now will serve, and what each load needs."""

    def __init__(self, rate: Rate, cold_start_s: float) -> None:
        self._rate = rate
        self._ahead = cold_start_s + TICK_S

    def target(self, cluster: Cluster, now: float) -> int:
        del cluster
        steps = math.ceil(self._ahead / TICK_S)
        return max(needed(self._rate(now + index * TICK_S)) for index in range(steps + 1))


def needed(rate: float) -> int:
    """Return the fewest replicas that keep the target at a steady rate."""
    servers = servers_for(
        rate * SERVICE_S,
        TARGET_WAIT_S / SERVICE_S,
        variability=1.0,
        share=SHARE_BEYOND,
        servers_max=REPLICAS_MAX * PLACES,
    )
    return max(math.ceil(servers / PLACES), 1)


def policies(scenario: Scenario, cold_start_s: float) -> dict[str, Policy]:
    """Return a new one of each."""
    latency = AutoscalingConfig(
        max_replicas=REPLICAS_MAX, target_ongoing_requests=PLACES, target_wait_s=TARGET_WAIT_S
    )
    calls = AutoscalingConfig(max_replicas=REPLICAS_MAX)
    ray = AutoscalingConfig(max_replicas=REPLICAS_MAX, upscale_delay_s=30.0)
    return {
        "oracle": Oracle(scenario.rate, cold_start_s),
        "latency": Shipping(latency, cold_start_s),
        "calls at once": Shipping(calls, cold_start_s),
        "Ray Serve": Shipping(ray, cold_start_s),
        "Kubernetes": Kubernetes(ray.target_ongoing_requests),
    }


# Playing.


def play(scenario: Scenario, cold_start_s: float, policy: Policy, name: str, seed: int) -> Outcome:
    """Play one policy on one load; what it takes of the oracle's is filled in by ``compare``."""
    cluster = Cluster(cold_start_s, needed(scenario.rate(0.0)), seed)
    draw = random.Random(seed)
    peak = max(scenario.rate(index * TICK_S) for index in range(int(scenario.seconds / TICK_S)))
    most = max(needed(scenario.rate(i * TICK_S)) for i in range(int(scenario.seconds / TICK_S)))
    over = under = 0
    tick, arrival = 0.0, draw.expovariate(peak)
    while min(tick, arrival) < scenario.seconds:
        now = min(tick, arrival, cluster.next_end())
        if now == cluster.next_end():
            cluster.end_one()
        elif now == arrival:
            if draw.random() * peak < scenario.rate(now):
                cluster.arrive(now)
            arrival += draw.expovariate(peak)
        else:
            cluster.place(now)
            cluster.scale(policy.target(cluster, now), now)
            difference = len(cluster.serving(now)) - needed(scenario.rate(now))
            over, under = max(over, difference), max(under, -difference)
            tick += TICK_S
    cluster.end(scenario.seconds)
    return Outcome(
        scenario=scenario.name,
        cold_start_s=cold_start_s,
        policy=name,
        replica_seconds=round(cluster.replica_seconds),
        of_oracle=1.0,
        beyond_target=round(_beyond(cluster, scenario, ()), 4),
        beyond_target_foreseeable=round(
            _beyond(cluster, scenario, _blind(scenario, cold_start_s)), 4
        ),
        overshoot=round(over / most, 2),
        undershoot=round(under / most, 2),
    )


def _blind(scenario: Scenario, cold_start_s: float) -> Sequence[tuple[float, float]]:
    recovery_s = _RECOVERY_SHARE * (cold_start_s + 4.0)
    return [(jump, jump + recovery_s) for jump in scenario.jumps]


def _beyond(cluster: Cluster, scenario: Scenario, blind: Sequence[tuple[float, float]]) -> float:
    # Those that still wait at the end have waited until then.
    calls = [*cluster.waits, *((begun, scenario.seconds - begun) for begun in cluster.waiting)]
    waits = [
        wait for begun, wait in calls if not any(first <= begun < last for first, last in blind)
    ]
    return sum(wait > TARGET_WAIT_S for wait in waits) / len(waits)


def compare(scenario: Scenario, cold_start_s: float, seed: int = 1) -> list[Outcome]:
    """Play all policies on one load; the oracle is the first."""
    played = [
        play(scenario, cold_start_s, policy, name, seed)
        for name, policy in policies(scenario, cold_start_s).items()
    ]
    least = played[0].replica_seconds
    return [
        Outcome(**{**asdict(each), "of_oracle": round(each.replica_seconds / least, 3)})
        for each in played
    ]


def as_text(outcomes: Sequence[Outcome]) -> str:
    """Return a table."""
    head = (
        f"{'load':9} {'start':>5} {'policy':14} {'replica-s':>9} {'x oracle':>8} {'beyond':>7} "
        f"{'foreseen':>8} {'over':>5} {'under':>5}"
    )
    lines = [
        f"{each.scenario:9} {each.cold_start_s:4.0f}s {each.policy:14} "
        f"{each.replica_seconds:9.0f} {each.of_oracle:8.2f} {each.beyond_target:7.2%} "
        f"{each.beyond_target_foreseeable:8.2%} {each.overshoot:5.2f} {each.undershoot:5.2f}"
        for each in outcomes
    ]
    return "\n".join([head, *lines])


def main() -> None:
    """Play everything, print the table and write the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cold-start", type=float, action="append", metavar="SECONDS")
    parser.add_argument("--scale", type=float, default=1.0, help="shortens the loads")
    parser.add_argument("--scenario", action="append", help="only these")
    parser.add_argument("--seed", type=int, default=1, help="of the calls; 1 for the results")
    parser.add_argument("--out", type=Path, help=f"where results go, such as {RESULTS}")
    given = parser.parse_args()
    outcomes: list[Outcome] = []
    for cold_start_s in given.cold_start or (1.0, 10.0, 60.0):
        for scenario in scenarios(given.scale):
            if not given.scenario or scenario.name in given.scenario:
                outcomes += compare(scenario, cold_start_s, given.seed)
    print(as_text(outcomes))
    if given.out is not None:
        given.out.write_text(json.dumps([asdict(each) for each in outcomes], indent=1) + "\n")


if __name__ == "__main__":
    main()
