"""Adjusts the numbers of replicas to the load: reports in, targets of versions out.

It has its own schedule, at most every 100 ms after a report and each second without one, and asks
for a step of the controller only when a number has changed.
"""

from __future__ import annotations

import asyncio
import json
import logging
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

from pyserve.config import AutoscalingConfig, AutoscalingPolicy, DeploymentID
from pyserve.config.parts import REPLICAS_MAX
from pyserve.control.autoscaling.latency import Fleet
from pyserve.control.autoscaling.policies import (
    LATE_AFTER_S,
    PolicyAsker,
    read_answer,
    read_answers,
)
from pyserve.control.autoscaling.scaler import Outcome, Scaler, add_scaling, scaling_status
from pyserve.control.autoscaling.value_times import StepReport
from pyserve.control.state.applications import Applications
from pyserve.control.state.history import Decision
from pyserve.control.state.mesh import MeshState, Phase, Version
from pyserve.control.state.replica import Costs
from pyserve.errors import MeshNotFound, UsageError, WrongMoment
from pyserve.observe.log_rate_limit import LogRateLimit
from pyserve.observe.metrics import Scrape
from pyserve.types import ApplicationName, DeploymentKey, DeploymentName, ReplicaId
from pyserve.wire.v1 import mesh_pb2

_LOGGER = logging.getLogger(__name__)
# Between two looks: a report comes as often. Without reports windows pass, and delays end.
_LOOK_AFTER_S, _LOOK_PERIOD_S = 0.1, 1.0
# Replicas whose start says how long one takes.
_STARTS_MAX = 5
_FROM_OUTSIDE = "an external scaler says so"


@dataclass(slots=True)
class _Counts:
    """Counts of one deployment's decisions: up, down, and failures of its policy."""

    up: int = 0
    down: int = 0
    failures: int = 0


@dataclass(slots=True)
class _Scaled:
    """One deployment that scales."""

    version: Version
    scaler: Scaler


class Autoscaling:
    """All deployments that scale.

    Args:
        state: whose versions get their targets.
        applications: those with a common policy or an external scaler.
        changed: asks for a step of the controller.
    """

    def __init__(
        self, state: MeshState, applications: Applications, changed: Callable[[], None]
    ) -> None:
        self._state = state
        self._applications = applications
        self._changed = changed
        self._loop = asyncio.get_running_loop()
        self._scaled: dict[DeploymentKey, _Scaled] = {}
        self._askers: dict[DeploymentKey | ApplicationName, PolicyAsker] = {}
        self._set_from_outside: dict[DeploymentKey, int] = {}
        self._look: asyncio.TimerHandle | None = None
        self._looked_at = -_LOOK_PERIOD_S
        self._lines = LogRateLimit()
        self._counts: dict[DeploymentKey, _Counts] = {}

    def add_metrics(self, scrape: Scrape) -> None:
        """Add what is decided, and upon what."""
        for key, scaled in self._scaled.items():
            counts = self._counts.get(key, _Counts())
            asker = self._askers.get(key) or self._askers.get(key.application)
            wanted = scaling_status(scaled.version)
            if wanted is not None:
                add_scaling(scrape, key, wanted, scaled.scaler, self._loop.time())
            labels = {"application": key.application, "deployment": key.deployment}
            for direction, value in (("up", counts.up), ("down", counts.down)):
                name = "pyserve_autoscaling_decisions_total"
                scrape.add(name, value, direction=direction, **labels)
            scrape.add("pyserve_autoscaling_failures_total", counts.failures, **labels)
            if asker is not None:
                scrape.add_histogram("pyserve_autoscaling_policy_seconds", asker.times, **labels)

    # What replicas, routers and outer scalers say.

    def on_replica(self, replica_id: ReplicaId, load: mesh_pb2.ReplicaLoad) -> None:
        """Take in a replica's load report, and for the status what its requests cost."""
        replica = self._state.replicas.get(replica_id)
        if replica is not None and load.HasField("costs"):
            costs = load.costs
            replica.costs = Costs(costs.running, costs.waiting, costs.budget)
        scaled = self._scaled.get(replica.key) if replica is not None else None
        if scaled is None or replica is None or replica.phase is not Phase.RUNNING:
            return
        now, signals = self._loop.time(), scaled.scaler.signals
        if load.stats_json:
            signals.on_metrics(replica_id, _numbers(load.stats_json), now)
        signals.on_replica(
            replica_id,
            ongoing=load.ongoing,
            calls=load.calls,
            busy_s=load.busy_s,
            now=now,
            cost=load.cost,
            steps=_step_report(load.steps) if load.HasField("steps") else None,
        )
        self._look_soon(now)

    def on_router(self, router: str, load: mesh_pb2.RouterLoad) -> None:
        """Take in a router's report of its calls."""
        now = self._loop.time()
        for each in load.deployments:
            scaled = self._scaled.get(_key(each.key.application, each.key.name))
            if scaled is not None:
                signals = scaled.scaler.signals
                signals.on_router(router, parked=each.parked, offered=each.offered, now=now)
                self._look_soon(now)

    def drop_router(self, router: str) -> None:
        """Forget a router that has gone."""
        for scaled in self._scaled.values():
            scaled.scaler.signals.drop_router(router, self._loop.time())

    def set_target(self, application: str, deployment: str, replicas: int) -> None:
        """Set a deployment's number of replicas for an external scaler.

        Raises:
            MeshNotFound: There is no such deployment.
            WrongMoment: Its application was not deployed with ``external_scaler_enabled``.
            UsageError: It cannot have that many.
        """
        key = _key(application, deployment)
        desired = self._state.deployments.get(key)
        if desired is None or desired.target is None:
            known = ", ".join(sorted(map(str, self._state.deployments))) or "none"
            raise MeshNotFound(f"there is no deployment {key}; there is: {known}")
        info = self._applications.infos.get(key.application)
        if info is None or not info.external_scaler_enabled:
            raise WrongMoment(
                f"application {application!r} is not scaled from outside: deploy it with "
                "external_scaler_enabled=True first"
            )
        if not 0 <= replicas <= REPLICAS_MAX:
            raise UsageError(
                f"target_num_replicas={replicas} is not allowed; from 0 to {REPLICAS_MAX}"
            )
        self._set_from_outside[key] = replicas
        self._move(key, desired.target, replicas, _FROM_OUTSIDE, time.time())

    # Called by the controller.

    def follow(self) -> None:
        """Match the scalers to what is deployed now. Runs before each step of the controller."""
        now = self._loop.time()
        wanted: dict[DeploymentKey, tuple[Version, AutoscalingConfig]] = {}
        for key, desired in self._state.deployments.items():
            target = desired.target
            if target is not None and (config := target.options.scaling) is not None:
                wanted[key] = target, config
        for key in self._scaled.keys() - wanted.keys():
            del self._scaled[key]
        for key, (version, config) in wanted.items():
            known = self._scaled.get(key)
            if known is None or known.version is not version or known.scaler.config != config:
                self._scaled[key] = self._taken_up(key, version, config, known, now)
        self._keep_set_from_outside()
        for key in self._counts.keys() - wanted.keys():
            del self._counts[key]
        for owner in list(self._askers):
            if not self._is_asked(owner):
                del self._askers[owner]
        if self._scaled and self._look is None:
            self._look_soon(now)

    def close(self) -> None:
        """Decide nothing more. Idempotent."""
        if self._look is not None:
            self._look.cancel()
        self._scaled = {}

    def _taken_up(
        self,
        key: DeploymentKey,
        version: Version,
        config: AutoscalingConfig,
        known: _Scaled | None,
        now: float,
    ) -> _Scaled:
        note = version.scaling
        if known is not None:
            # Another version, or other bounds, under load: the running replicas are needed.
            bounded = max(config.min_replicas, min(config.max_replicas, known.version.num_replicas))
            note.target = bounded if known.version is version else max(bounded, 1)
        note.least, note.most = config.min_replicas, config.max_replicas
        scaler = Scaler(key, config, version.num_replicas, now)
        if known is None and note.reason:  # As an earlier controller has decided.
            since = now - (time.time() - note.since)
            scaler = Scaler(key, config, version.num_replicas, now, reason=note.reason, since=since)
        if known is not None:
            scaler.signals.take_over(known.scaler.signals, now)
        return _Scaled(version, scaler)

    def _keep_set_from_outside(self) -> None:
        """Let another version begin with the number that an external scaler has set."""
        for key, replicas in list(self._set_from_outside.items()):
            info = self._applications.infos.get(key.application)
            desired = self._state.deployments.get(key)
            if desired is None or info is None or not info.external_scaler_enabled:
                del self._set_from_outside[key]
            elif desired.target is not None and desired.target.scaling.target is None:
                note = desired.target.scaling
                note.target, note.reason, note.since = replicas, _FROM_OUTSIDE, time.time()

    def _is_asked(self, owner: DeploymentKey | ApplicationName) -> bool:
        if isinstance(owner, DeploymentKey):
            return owner in self._scaled
        return any(key.application == owner for key in self._scaled)

    # Looks.

    def _look_soon(self, now: float) -> None:
        due = max(self._looked_at + _LOOK_AFTER_S, now)
        if self._look is None or self._look.when() > due:
            if self._look is not None:
                self._look.cancel()
            self._look = self._loop.call_at(due, self._look_now)

    def _look_now(self) -> None:
        now = self._looked_at = self._loop.time()
        self._look = self._loop.call_at(now + _LOOK_PERIOD_S, self._look_now)
        if not self._scaled:
            self._look.cancel()
            self._look = None
            return
        together: dict[ApplicationName, list[DeploymentKey]] = {}
        for key, scaled in list(self._scaled.items()):
            if scaled.version.failed:
                continue
            fleet = self._fleet(key, scaled)
            scaled.scaler.signals.keep_replicas(set(fleet.running), now)
            info = self._applications.infos.get(key.application)
            if info is not None and info.autoscaling_policy is not None:
                together.setdefault(key.application, []).append(key)
            elif scaled.scaler.config.policy_path:
                self._ask(key, scaled, fleet, now)
            else:
                self._apply(scaled, scaled.scaler.decide(fleet, now))
        for application, keys in together.items():
            self._ask_for_all(application, keys, now)

    def _fleet(self, key: DeploymentKey, scaled: _Scaled) -> Fleet:
        replicas = list(self._state.of_deployment(key))
        starts = sorted(
            (item.ready_at, item.ready_at - item.created_at)
            for item in replicas
            if item.ready_at is not None and item.version == scaled.version.id
        )
        took_s = statistics.median(each for _, each in starts[-_STARTS_MAX:]) if starts else None
        if took_s is not None:
            scaled.version.scaling.ready_after_s = took_s
        return Fleet(
            running=[item.id for item in replicas if item.serves],
            target=scaled.version.num_replicas,
            starting_since=[item.created_at for item in replicas if item.phase is Phase.STARTING],
            ready_after_s=scaled.version.scaling.ready_after_s,
            ongoing_max=scaled.version.options.ongoing_requests_limit(),
        )

    def _apply(self, scaled: _Scaled, outcome: Outcome) -> None:
        note, version, key = scaled.version.scaling, scaled.version, scaled.scaler.key
        note.pending = outcome.pending
        since = time.time() - (self._loop.time() - outcome.since)
        if scaled.scaler.config.advisory:
            if outcome.target != note.advised:
                before = version.num_replicas if note.advised is None else note.advised
                self._keep(key, Decision(since, before, outcome.target, outcome.reason))
                note.advised, note.reason, note.since = outcome.target, outcome.reason, since
        elif outcome.target != version.num_replicas:
            self._move(key, version, outcome.target, outcome.reason, since)
        elif not note.reason or outcome.reason != note.reason:
            note.reason, note.since = outcome.reason, since

    def _move(
        self, key: DeploymentKey, version: Version, replicas: int, reason: str, since: float
    ) -> None:
        note, before = version.scaling, version.num_replicas
        note.reason = reason
        if replicas != before:
            note.direction = 1 if replicas > before else -1
            self._count(key, note.direction)
            self._keep(key, Decision(since, before, replicas, reason))
            note.target, note.since = replicas, since
            _LOGGER.info("%s: %d replicas instead of %d: %s", version.id, replicas, before, reason)
            self._changed()

    def _keep(self, key: DeploymentKey, decision: Decision) -> None:
        desired = self._state.deployments.get(key)
        if desired is not None:
            desired.decisions.append(decision)

    # Policies of users.

    def _ask(self, key: DeploymentKey, scaled: _Scaled, fleet: Fleet, now: float) -> None:
        policy = scaled.scaler.config.policy
        assert isinstance(policy, AutoscalingPolicy), "it has a path"
        asker = self._asker(key, policy, scaled)
        if asker.is_busy:
            self._complain_if_late(asker, [scaled], now)
            return
        context = scaled.scaler.context(fleet, now, time.time())
        asker.ask(context, now, self._from_thread(partial(self._answered, key, scaled)))

    def _answered(self, key: DeploymentKey, scaled: _Scaled, answer: object, why: str) -> None:
        if self._scaled.get(key) is not scaled:
            return  # Deployed anew meanwhile.
        try:
            if why:
                raise ValueError(why)
            number, state = read_answer(answer)
            self._take(key, scaled, number, state)
        except ValueError as error:
            self._failed(scaled, str(error))

    def _ask_for_all(
        self, application: ApplicationName, keys: list[DeploymentKey], now: float
    ) -> None:
        policy = self._applications.infos[application].autoscaling_policy
        assert policy is not None, "the application has one"
        all_scaled = {key: self._scaled[key] for key in keys}
        asker = self._asker(application, policy, next(iter(all_scaled.values())))
        if asker.is_busy:
            self._complain_if_late(asker, list(all_scaled.values()), now)
            return
        question = {
            DeploymentID(key.deployment, key.application): scaled.scaler.context(
                self._fleet(key, scaled), now, time.time()
            )
            for key, scaled in all_scaled.items()
        }
        asker.ask(question, now, self._from_thread(partial(self._answered_for_all, all_scaled)))

    def _answered_for_all(
        self, asked: Mapping[DeploymentKey, _Scaled], answer: object, why: str
    ) -> None:
        present = {key: each for key, each in asked.items() if self._scaled.get(key) is each}
        try:
            if why:
                raise ValueError(why)
            numbers, states = read_answers(answer)
            for key, scaled in present.items():
                # Deployments that it leaves out keep their number.
                if key.deployment in numbers:
                    name = key.deployment
                    self._take(key, scaled, numbers[name], states.get(name))
        except ValueError as error:
            for scaled in present.values():
                self._failed(scaled, str(error))

    def _take(
        self, key: DeploymentKey, scaled: _Scaled, number: float, state: Mapping[str, object] | None
    ) -> None:
        now = self._loop.time()
        self._apply(scaled, scaled.scaler.take(number, state, self._fleet(key, scaled), now))

    def _asker(
        self, owner: DeploymentKey | ApplicationName, policy: AutoscalingPolicy, scaled: _Scaled
    ) -> PolicyAsker:
        asker = self._askers.get(owner)
        if asker is None or asker.policy != policy:
            asker = self._askers[owner] = PolicyAsker(policy, scaled.version.sys_path)
        return asker

    def _complain_if_late(self, asker: PolicyAsker, waiting: list[_Scaled], now: float) -> None:
        if asker.is_late(now):
            for scaled in waiting:
                self._failed(scaled, f"has not answered for {LATE_AFTER_S:g} s")

    def _count(self, key: DeploymentKey, direction: int) -> None:
        if key in self._scaled:
            counts = self._counts.setdefault(key, _Counts())
            counts.up += direction > 0
            counts.down += direction < 0

    def _failed(self, scaled: _Scaled, why: str) -> None:
        scaler = scaled.scaler
        self._counts.setdefault(scaler.key, _Counts()).failures += 1
        scaler.on_policy_failed(why, scaled.version.num_replicas, self._loop.time())
        scaled.version.scaling.reason = scaler.outcome.reason
        if self._lines.allows():
            _LOGGER.warning("%s", scaler.outcome.reason)

    def _from_thread(
        self, answered: Callable[[object, str], None]
    ) -> Callable[[object, str], None]:
        def tell(answer: object, why: str) -> None:
            if not self._loop.is_closed():
                self._loop.call_soon_threadsafe(answered, answer, why)

        return tell


def _numbers(stats_json: str) -> dict[str, float]:
    """Return the numbers among a replica's statistics."""
    found = json.loads(stats_json)
    return {name: float(value) for name, value in found.items() if isinstance(value, int | float)}


def _step_report(told: mesh_pb2.StepLoad) -> StepReport:
    return StepReport(
        first_values=told.first_values,
        first_value_s=told.first_value_s,
        next_values=told.next_values,
        next_value_s=told.next_value_s,
        unanswered=told.unanswered,
        unanswered_s=told.unanswered_s,
        fullness=told.fullness,
    )


def _key(application: str, deployment: str) -> DeploymentKey:
    return DeploymentKey(ApplicationName(application), DeploymentName(deployment))
