"""Decides for one deployment with any policy, and describes the decision. Pure.

The driver passes observations and the time; a user's policy is called by the driver, because that
is not pure, and its answer comes back through ``take``.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from pyserve.config import AutoscalingConfig, AutoscalingContext, DeploymentID
from pyserve.control.autoscaling.latency import Fleet, LatencyPolicy
from pyserve.control.autoscaling.rule import Delays, Proposal, by_targets
from pyserve.control.autoscaling.signals import Signals
from pyserve.control.state.history import Decision
from pyserve.control.state.mesh import Version
from pyserve.observe.metrics import Scrape
from pyserve.types import DeploymentKey
from pyserve.wire.v1 import control_pb2


@dataclass(frozen=True, slots=True)
class Outcome:
    """The last decision.

    Attributes:
        target: How many replicas to run; with ``advisory``, only a recommendation.
        reason: Why, as a clause.
        since: When it was decided.
        pending: How many replicas are wanted once a delay has passed; else the same as ``target``.
    """

    target: int
    reason: str
    since: float
    pending: int


@dataclass(slots=True)
class _Memory:
    state: dict[str, Any] = field(default_factory=dict)
    scaled_up_at: float | None = None
    scaled_down_at: float | None = None


class Scaler:
    """One deployment's.

    Args:
        key: Which one.
        config: Its ``autoscaling_config``.
        target: The current target number of replicas.
        now: Seconds, on the clock of all other times here.
        reason: Why it is so many.
        since: When that was decided; ``None``: now.

    Attributes:
        key, config: The same.
        signals: The reports of its load.
        outcome: The last decision.
    """

    def __init__(
        self,
        key: DeploymentKey,
        config: AutoscalingConfig,
        target: int,
        now: float,
        *,
        reason: str = "as deployed",
        since: float | None = None,
    ) -> None:
        self.key = key
        self.config = config
        self.signals = Signals(config, now)
        self.outcome = Outcome(target, reason, now if since is None else since, target)
        self._delays = Delays(config)
        self._latency = LatencyPolicy(config) if config.latency_target else None
        self._memory = _Memory()
        self._fails = False

    def decide(self, fleet: Fleet, now: float) -> Outcome:
        """Decide by the built-in policy."""
        if self._latency is not None:
            proposal = self._latency.propose(self.signals, fleet, now)
        else:
            proposal = by_targets(self.config, self.signals, len(fleet.running), fleet.target, now)
        return self._settle(proposal, fleet, now)

    def take(
        self, number: float, state: Mapping[str, Any] | None, fleet: Fleet, now: float
    ) -> Outcome:
        """Take the answer of a policy of the user's.

        Raises:
            ValueError: It is not a valid number.
        """
        if isinstance(number, bool) or not isinstance(number, int | float):
            raise ValueError(f"it returned {number!r} instead of a number of replicas")
        if not math.isfinite(number) or number < 0:
            raise ValueError(f"it returned {number!r}; a number of replicas is at least 0")
        self._memory.state = dict(state or {})
        if not fleet.running and fleet.target == 0 and self.signals.total:
            # As in Ray Serve: from zero it is not the policy that decides.
            number = max(number, 1)
        return self._settle(Proposal(number, f"{self.config.policy_path} says so"), fleet, now)

    def on_policy_failed(self, why: str, target: int, now: float) -> None:
        """The policy gave no answer; the number stays."""
        reason = f"the policy {self.config.policy_path} {why}; the number stays"
        if reason != self.outcome.reason:
            self.outcome = Outcome(target, reason, now, target)
        self._fails = True

    def context(self, fleet: Fleet, now: float, unix_now: float) -> AutoscalingContext:
        """Return the context that a user's policy gets."""

        def unix(at: float | None) -> float | None:
            return None if at is None else unix_now - now + at

        signals = self.signals
        queued = float(signals.parked)
        # Made at once: a policy reads it in another thread.
        total = signals.total_recently(now) if fleet.running else float(signals.total)
        return AutoscalingContext(
            deployment_id=DeploymentID(self.key.deployment, self.key.application),
            deployment_name=self.key.deployment,
            app_name=self.key.application,
            current_num_replicas=len(fleet.running),
            target_num_replicas=fleet.target,
            running_replicas=list(fleet.running),
            total_num_requests=max(total, queued),
            total_queued_requests=queued,
            aggregated_metrics=signals.aggregated_metrics(now),
            raw_metrics=signals.raw_metrics(now, unix_now),
            capacity_adjusted_min_replicas=self.config.min_replicas,
            capacity_adjusted_max_replicas=self.config.max_replicas,
            policy_state=dict(self._memory.state),
            last_scale_up_time=unix(self._memory.scaled_up_at),
            last_scale_down_time=unix(self._memory.scaled_down_at),
            current_time=unix_now,
            config=self.config,
        )

    def _settle(self, proposal: Proposal, fleet: Fleet, now: float) -> Outcome:
        settled = self._delays.settle(
            proposal.number, running=len(fleet.running), target=fleet.target, now=now
        )
        moved = settled.number != fleet.target
        if moved and settled.number > fleet.target:
            self._memory.scaled_up_at = now
        elif moved:
            self._memory.scaled_down_at = now
        before = self.outcome
        # Advice holds until it is not needed any more: the number itself never follows it.
        stands = self.config.advisory and not moved and settled.wanted != fleet.target
        target = before.target if stands else settled.number
        if target != before.target or self._fails:
            self.outcome = Outcome(target, proposal.reason, now, settled.wanted)
        else:
            self.outcome = Outcome(target, before.reason, before.since, settled.wanted)
        self._fails = False
        return self.outcome


# Metrics of autoscaling: wanted replicas, and the load behind each decision.


def add_scaling(
    scrape: Scrape, key: DeploymentKey, wanted: control_pb2.Scaling, scaler: Scaler, now: float
) -> None:
    """Add numbers of replicas, and the load that they are decided upon."""
    signals, values = scaler.signals, scaler.signals.values
    labels = {"application": key.application, "deployment": key.deployment}
    for name, value in (
        ("target_replicas", wanted.target),
        ("pending_replicas", wanted.pending),
        ("min_replicas", wanted.min_replicas),
        ("max_replicas", wanted.max_replicas),
        ("replica_start_seconds", wanted.ready_after_s),
        ("target_ongoing_calls", scaler.config.target_ongoing_requests),
        ("total_calls", signals.total),
        ("parked_calls", signals.parked),
        ("total_cost", signals.total_cost),
        ("first_value_seconds", values.first_value_s(now, recently=True) or 0.0),
        ("value_seconds", values.next_value_s(now, recently=True) or 0.0),
    ):
        scrape.add(f"pyserve_autoscaling_{name}", value, **labels)


# Describes a deployment's autoscaling in the status reply.


def scaling_status(
    version: Version | None, decisions: Iterable[Decision] = ()
) -> control_pb2.Scaling | None:
    """Return its policy and last decision; ``None``: the deploy sets the number of replicas."""
    if version is None:
        return None
    config, note = version.options.scaling, version.scaling
    if config is None and note.target is None:
        return None
    is_advisory = config is not None and config.advisory
    advised = note.advised if is_advisory else None
    return control_pb2.Scaling(
        target=version.num_replicas if advised is None else advised,
        reason=note.reason or "as deployed",
        since=note.since,
        pending=note.pending if config is not None else version.num_replicas,
        min_replicas=note.least,
        max_replicas=note.most,
        is_advisory=is_advisory,
        ready_after_s=note.ready_after_s or 0.0,
        decisions=[
            control_pb2.ScalingDecision(
                at=each.at, before=each.before, after=each.after, reason=each.reason
            )
            for each in decisions
        ],
    )
