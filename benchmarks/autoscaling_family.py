"""Autoscaling on workloads of any kind: ``python -m benchmarks.autoscaling_family``.

Each seed makes a workload (``autoscaling_workloads``). It is played in virtual time against what a
mesh runs, the policy ``latency`` with all its signals, and against a rival, calls at once for each
replica with the same delays. A workload has failed where the number of replicas does not fit the
load any more although there was time enough; then all of it is printed.
"""

from __future__ import annotations

import argparse
import heapq
import json
import math
import random
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.autoscaling_cluster import LOOK_S, Call, Cluster
from benchmarks.autoscaling_workloads import Mix, Phase, Workload, workload
from pyserve.config import AutoscalingConfig
from pyserve.control.autoscaling.latency import Fleet
from pyserve.control.autoscaling.scaler import Scaler
from pyserve.types import ApplicationName, DeploymentKey, DeploymentName, ReplicaId

RESULTS = Path(__file__).parent / "results" / "autoscaling-family.json"
# How often the scaler looks.
TICK_S = 0.5
POLICIES = ("latency", "calls at once")
# What a settled number may be beyond the fewest that keep the target: half as many, and one.
_BAND_TIMES, _BAND_MORE = 1.5, 1.0
# Where a router holds calls back, as many replicas as are used may be tried for them.
_HELD_TIMES = 2.0
# And where nothing comes, in the mean: a call of the phase before may be the longest of thousands.
_IDLE_MORE = 0.25
# A number is pinned if it is at a bound for most of the settled time without need.
_AT_BOUND_MAX = 0.5
_KEY = DeploymentKey(ApplicationName("sim"), DeploymentName("Model"))
BURST_TIMES = 10.0
_HELD_SHARE = 0.5


@dataclass
class Settled:
    """The settled part of a phase.

    Attributes:
        ticks, replicas: Looks, and the sum of the numbers of replicas that were wanted at them.
        at_max, at_min: Looks that wanted as many, or as few, as are allowed.
        running: Calls that ran at these looks, those of earlier phases included; their sum.
        work_s: What calls that came in that time take.
        waiting: Calls that wait at the end.
    """

    ticks: int = 0
    replicas: int = 0
    at_max: int = 0
    at_min: int = 0
    running: int = 0
    work_s: float = 0.0
    waiting: int = 0

    @property
    def mean(self) -> float:
        """How many replicas were wanted."""
        return self.replicas / max(self.ticks, 1)


@dataclass
class Played:
    """A policy's record of a workload."""

    policy: str
    replica_seconds: float = 0.0
    calls: int = 0
    beyond: int = 0
    settled: list[Settled] = field(default_factory=list)
    numbers: list[tuple[float, int, str]] = field(default_factory=list)


class Scaling:
    """The scaler of a mesh, with the signals that it gets."""

    def __init__(self, made: Workload, policy: str) -> None:
        options: dict[str, float] = {
            "min_replicas": made.replicas_min,
            "max_replicas": made.replicas_max,
            "target_ongoing_requests": float(made.each),
        }
        if policy == "latency":
            options["target_wait_s"] = made.target_s
        else:
            # Means of ten seconds, and the same hold.
            options["look_back_period_s"] = 10.0
            options["downscale_delay_s"] = made.hold_s()
        config = AutoscalingConfig.of("autoscaling_config", options)
        self._made = made
        self._scaler = Scaler(_KEY, config, max(made.replicas_min, 1), 0.0)
        self._before: list[tuple[ReplicaId, int, int, float]] = []

    def decide(self, cluster: Cluster, now: float) -> tuple[int, str]:
        """Return the number of replicas to have, and why."""
        signals, serving = self._scaler.signals, cluster.serving()
        signals.keep_replicas({each.name for each in serving}, now)
        reports = [(each.name, each.ongoing, each.calls, each.busy_s) for each in serving]
        # A replica's word may be older than a router's.
        told = self._before if self._made.lagging else reports
        self._before = reports
        parked = len(cluster.waiting) + cluster.held
        signals.on_router("ingress", parked=parked, offered=cluster.offered, now=now)
        names = {each.name for each in serving}
        for name, ongoing, calls, busy_s in told:
            if name in names:
                signals.on_replica(name, ongoing=ongoing, calls=calls, busy_s=busy_s, now=now)
        fleet = Fleet(
            running=[each.name for each in serving],
            target=cluster.target,
            starting_since=cluster.starting(now),
            ready_after_s=self._made.start_s,
            ongoing_max=self._made.places,
        )
        outcome = self._scaler.decide(fleet, now)
        return outcome.target, outcome.reason


class _Play:
    """One policy on one workload."""

    def __init__(self, made: Workload, policy: str) -> None:
        self._made = made
        self.found = Played(policy)
        self._cluster = Cluster(made)
        self._scaling = Scaling(made, policy)
        # Both policies get the same calls: the order in which these end must not matter.
        self._arriving, self._taking = random.Random(made.seed), random.Random(made.seed + 1)
        self._events: list[tuple[float, int, str, object]] = []
        self._number = 0
        self._phase, self._phase_begun = 0, 0.0
        self._clients: set[int] = set()

    def play(self) -> Played:
        ends: list[float] = []
        for phase in self._made.phases:
            ends.append((ends[-1] if ends else 0.0) + phase.seconds)
            self.found.settled.append(Settled())
        self._at(0.0, "tick", None)
        self._at(0.0, "look", None)
        self._begin(0, 0.0)
        while self._events:
            now, _, kind, what = heapq.heappop(self._events)
            while now >= ends[self._phase]:
                self.found.settled[self._phase].waiting = len(self._cluster.waiting)
                if self._phase + 1 == len(ends):
                    self._end(ends[-1])
                    return self.found
                self._begin(self._phase + 1, ends[self._phase])
            getattr(self, f"_on_{kind}")(what, now)
        raise AssertionError("ticks never end")

    def _end(self, now: float) -> None:
        for call in self._cluster.waiting:
            self._count(call, now)
        self._cluster.close(now)
        self.found.replica_seconds = self._cluster.replica_seconds

    def _at(self, at: float, kind: str, what: object) -> None:
        self._number += 1
        heapq.heappush(self._events, (at, self._number, kind, what))

    def _begin(self, number: int, at: float) -> None:
        self._phase, self._phase_begun = number, at
        phase = self._made.phases[number]
        self._clients = set()
        if phase.mix.clients or phase.other.clients:
            self._change_clients(self._mix(at), at)
        self._at(at, "arrival", number)

    # What happens.

    def _on_tick(self, _: object, now: float) -> None:
        self._at(now + TICK_S, "tick", None)
        cluster = self._cluster
        cluster.look(now)
        self._place(now)
        target, reason = self._scaling.decide(cluster, now)
        if target != cluster.target:
            self.found.numbers.append((now, target, reason))
            cluster.scale(target, now)
        if self._phase_of_mix().shape == "alternate":
            self._change_clients(self._mix(now), now)
        phase = self._phase_of_mix()
        if now - self._phase_begun >= phase.settle_s:
            seen, made = self.found.settled[self._phase], self._made
            seen.ticks += 1
            seen.replicas += target
            seen.running += sum(each.ongoing for each in cluster.serving())
            seen.at_max += target == made.replicas_max
            seen.at_min += target == made.replicas_min

    def _on_look(self, _: object, now: float) -> None:
        self._at(now + LOOK_S, "look", None)
        self._cluster.count()

    def _on_arrival(self, number: object, now: float) -> None:
        """A call may come: one of the fastest rate that the phase has."""
        if number != self._phase:
            return
        phase = self._phase_of_mix()
        times = BURST_TIMES if phase.shape == "burst" else 1.0
        other = phase.other.rate if phase.shape == "alternate" else 0.0
        most = max(phase.mix.rate, other, self._rate(now)) * times
        if most <= 0:
            return
        if now > self._phase_begun and self._arriving.random() * most < self._rate(now):
            self._come(now, None)
        self._at(now + self._arriving.expovariate(most), "arrival", number)

    def _on_think(self, client: object, now: float) -> None:
        if client in self._clients:
            assert isinstance(client, int)
            self._come(now, client)

    def _on_unheld(self, call: object, now: float) -> None:
        assert isinstance(call, Call)
        self._cluster.held -= 1
        self._cluster.waiting.append(Call(now, call.takes_s, call.client, call.phase))
        self._place(now)

    def _on_done(self, what: object, now: float) -> None:
        assert isinstance(what, tuple)
        call, replica = what
        self._cluster.end(replica, now)
        think_s = self._mix(now).think_s
        if call.client in self._clients and think_s:
            self._at(now + self._taking.expovariate(1 / think_s), "think", call.client)
        self._place(now)

    def _come(self, now: float, client: int | None) -> None:
        phase = self._phase_of_mix()
        call = Call(now, self._mix(now).draw(self._arriving), client, self._phase)
        self._cluster.offered += 1
        if now - self._phase_begun >= phase.settle_s:
            self.found.settled[self._phase].work_s += call.takes_s
        if phase.shape == "held" and self._arriving.random() < _HELD_SHARE:
            self._cluster.held += 1
            self._at(now + phase.held_s, "unheld", call)
            return
        self._cluster.waiting.append(call)
        self._place(now)

    def _place(self, now: float) -> None:
        for call, replica in self._cluster.place():
            self._count(call, now)
            self._at(now + call.takes_s, "done", (call, replica))

    def _count(self, call: Call, now: float) -> None:
        self.found.calls += 1
        self.found.beyond += now - call.came > self._made.target_s

    # Of the phase.

    def _phase_of_mix(self) -> Phase:
        return self._made.phases[self._phase]

    def _mix(self, now: float) -> Mix:
        phase = self._phase_of_mix()
        since = now - self._phase_begun
        if phase.shape == "alternate" and since // phase.every_s % 2:
            return phase.other
        if phase.shape == "drift" and phase.other.load and not phase.mix.clients:
            part = min(since / phase.settle_s * 2, 1.0)
            service_s = phase.other.service_s ** (1 - part) * phase.mix.service_s**part
            load = phase.other.load * (1 - part) + phase.mix.load * part
            return Mix(phase.mix.spread, service_s, load / service_s)
        return phase.mix

    def _rate(self, now: float) -> float:
        phase = self._phase_of_mix()
        since = now - self._phase_begun
        if phase.shape == "burst":
            is_dense = since % phase.every_s < phase.every_s / BURST_TIMES
            return phase.mix.rate * BURST_TIMES if is_dense else 0.0
        return self._mix(now).rate

    def _change_clients(self, mix: Mix, now: float) -> None:
        """Let as many clients call as the mix has; those that are too many call no more."""
        base = self._phase * 1_000_000
        while len(self._clients) > mix.clients:
            self._clients.discard(max(self._clients))
        for number in range(len(self._clients), mix.clients):
            client = base + number + int(now) * 1000
            self._clients.add(client)
            first_s = self._arriving.uniform(0, mix.think_s)
            self._at(now + first_s, "think", client)


def play(made: Workload, policy: str) -> Played:
    """Play a policy on a workload."""
    return _Play(made, policy).play()


# Bars.


def faults(made: Workload, found: Played) -> list[str]:
    """Return where the number of replicas does not fit the load, a sentence each."""
    return [
        f"phase {number}, {phase.shape}: {fault}"
        for number, (phase, seen) in enumerate(zip(made.phases, found.settled, strict=True))
        for fault in _faults(made, phase, seen)
    ]


def _faults(made: Workload, phase: Phase, seen: Settled) -> list[str]:
    mixes = [phase.mix, phase.other] if phase.shape == "alternate" else [phase.mix]
    settled_s = seen.ticks * TICK_S
    load = seen.work_s / settled_s
    least = max(made.needed(mix) for mix in mixes)
    if phase.shape == "burst":
        # In the first second of a burst nobody knows that it ends; what it would need is held.
        least = made.needed(phase.mix, phase.mix.load * BURST_TIMES)
    if load:
        # By chance it is more than the mean, or a long call of a phase before still runs.
        found = max(load, seen.running / seen.ticks)
        least = max(least, made.needed(max(mixes, key=lambda mix: mix.service_s), found))
    times = _HELD_TIMES if phase.shape == "held" else _BAND_TIMES
    most = times * least + _BAND_MORE if load else least + _IDLE_MORE
    # Not by the one call of ten minutes that came among few.
    usual = min(load, max(mix.load for mix in mixes))
    stable = min(usual / made.places, made.replicas_max)
    said = []
    # Who takes turns never settles: for moments the rate of one meets the time of the other.
    if seen.mean > most and phase.shape != "alternate":
        said.append(f"{seen.mean:.1f} replicas in the mean, {least} suffice (most: {most:.1f})")
    # Less than one replica may be one for a part of the time, or calls of one that drains.
    if stable >= 1 and seen.mean < 0.9 * stable:
        said.append(f"{seen.mean:.1f} replicas in the mean, the load takes {stable:.1f}")
    if most < made.replicas_max and seen.at_max > _AT_BOUND_MAX * seen.ticks:
        said.append(f"at the maximum for {seen.at_max / seen.ticks:.0%} of the time")
    if seen.at_min == seen.ticks and made.replicas_min < math.floor(stable):
        said.append("at the minimum all the time")
    return said


@dataclass
class Totals:
    """What policies did with many workloads."""

    replica_seconds: dict[str, float] = field(default_factory=lambda: dict.fromkeys(POLICIES, 0.0))
    calls: dict[str, int] = field(default_factory=lambda: dict.fromkeys(POLICIES, 0))
    beyond: dict[str, int] = field(default_factory=lambda: dict.fromkeys(POLICIES, 0))
    shares: dict[str, list[float]] = field(default_factory=lambda: {each: [] for each in POLICIES})

    def add(self, found: Played) -> None:
        """Count one more."""
        self.replica_seconds[found.policy] += found.replica_seconds
        self.calls[found.policy] += found.calls
        self.beyond[found.policy] += found.beyond
        self.shares[found.policy].append(found.beyond / max(found.calls, 1))

    def figures(self) -> dict[str, dict[str, float]]:
        """Return what a file of results keeps."""
        return {
            each: {
                "replica_seconds": round(self.replica_seconds[each]),
                "calls": self.calls[each],
                "beyond_target": round(self.beyond[each] / max(self.calls[each], 1), 4),
            }
            for each in POLICIES
        }

    def __str__(self) -> str:
        """A line a policy."""
        return "\n".join(
            f"{each:14} {self.replica_seconds[each]:12.0f} replica-seconds, "
            f"{self.beyond[each] / max(self.calls[each], 1):6.2%} of {self.calls[each]} calls "
            f"beyond the target ({sum(self.shares[each]) / max(len(self.shares[each]), 1):.2%} "
            "of a workload's in the mean)"
            for each in POLICIES
        )


def main(arguments: Sequence[str] | None = None) -> int:
    """Play seeds; return 1 where one has failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(2**31))
    parser.add_argument("--workloads", type=int, default=100, help="so many, from that seed on")
    parser.add_argument("--verbose", action="store_true", help="print each decision")
    parser.add_argument("--out", type=Path, help=f"where results go, such as {RESULTS}")
    given = parser.parse_args(arguments)
    print(f"seed {given.seed}", flush=True)
    totals, failed, rivals = Totals(), 0, 0
    for seed in range(given.seed, given.seed + given.workloads):
        made = workload(seed)
        ours, rival = (play(made, each) for each in POLICIES)
        totals.add(ours)
        totals.add(rival)
        found = faults(made, ours)
        failed += bool(found)
        rivals += bool(faults(made, rival))
        if found or given.verbose:
            print(made, *found, sep="\n  ", flush=True)
        if given.verbose:
            print(
                *(f"  {at:7.1f} s {number:3} {why}" for at, number, why in ours.numbers), sep="\n"
            )
    print(totals)
    print(f"{failed} of {given.workloads} workloads failed, {rivals} of the rival's")
    if given.out is not None:
        figures = {
            "seed": given.seed,
            "workloads": given.workloads,
            "failed": dict(zip(POLICIES, (failed, rivals), strict=True)),
            **totals.figures(),
        }
        given.out.write_text(json.dumps(figures, indent=1) + "\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
