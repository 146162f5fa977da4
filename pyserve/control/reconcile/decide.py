"""Decides the next actions that bring the mesh to its desired state. Pure.

``reconcile`` compares desired and observed state and returns actions; carrying them out changes the
state through ``MeshState``'s events, after which it is called again until it returns none.
``next_wakeup`` returns when the passing of time alone will lead to actions.

Rules, each of which a test can break:

- A missing replica is started, at once after a first death, then with growing delay.
- While an older version serves, the new one replaces it by the rules of ``rollout``, which also
  decides when it is given up. The older version then serves on, with all of its replicas.
- Three failed checks in a row replace a replica; after a failed one, silence for a period and a
  timeout counts as another. Replicas whose checks succeed are silent.
- A replica whose process gives no sign of life for as long as three checks may take is killed.
- Callers end before the deployments that they call, see ``turn_at``.
- A replica that drains is killed when its grace has passed; one that hangs is replaced.
- Of replicas started from outside, those of older versions drain when as many of the newest serve.
- A gang starts as a whole, once nothing is left of the former one, and ends when it loses a member.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from pyserve.config.control import CALLERS_END_TIMEOUT_S, HEALTH_FAILURES_MAX, REJOIN_TIMEOUT_S
from pyserve.control.reconcile.rollout import (
    broken,
    final_failure,
    gang_of,
    replaced,
    starts_max,
    whole_gangs,
)
from pyserve.control.state.mesh import Desired, Phase, Replica, Version
from pyserve.control.state.replica import Failure, ReplicaIndex, Slot
from pyserve.types import DeploymentKey, ReplicaId

# Why a replica ends when nothing is wrong with it.
NOT_NEEDED = "is not needed any more"
_LOST_ITS_GANG = "has lost one of its gang, which starts again as a whole"


@dataclass(frozen=True, slots=True)
class StartReplica:
    """Start a process for a slot of a version; with those of its gang, which has a number."""

    key: DeploymentKey
    version: str
    slot: int
    gang: int | None = None


@dataclass(frozen=True, slots=True)
class StopReplica:
    """Take the replica out of the views and let it finish its calls, for ``grace_s``."""

    replica_id: ReplicaId
    grace_s: float
    reason: str


@dataclass(frozen=True, slots=True)
class KillReplica:
    """End the process now; ``failure`` is given when that makes its start a failed one."""

    replica_id: ReplicaId
    reason: str
    failure: Failure | None = None


@dataclass(frozen=True, slots=True)
class FailVersion:
    """Give up the target and go back to the version that served before, if there is one."""

    key: DeploymentKey
    failure: Failure


@dataclass(frozen=True, slots=True)
class CompleteVersion:
    """The target serves with all of its wanted replicas, and no other replicas serve."""

    key: DeploymentKey


@dataclass(frozen=True, slots=True)
class ForgetDeployment:
    """Nothing of the deployment is left."""

    key: DeploymentKey


Action = StartReplica | StopReplica | KillReplica | FailVersion | CompleteVersion | ForgetDeployment


def reconcile(
    desired: Mapping[DeploymentKey, Desired],
    observed: ReplicaIndex,
    now: float,
) -> list[Action]:
    """Return what to do now, in order; an empty list when all is as it should be.

    Args:
        desired: every deployment that exists or has not ended yet.
        observed: every replica whose process has not ended yet.
        now: seconds, on the clock of the state's times.
    """
    replicas = observed.by_deployment()
    uneasy = _grouped(observed.uneasy())
    actions: list[Action] = []
    for key, deployment in desired.items():
        mine = replicas[key]
        overdue = list(_overdue(uneasy.get(key, ()), now))
        if overdue:
            # The rest depends on which replicas are left, so it waits for the next round.
            missing = _missing_besides(key, desired, replicas)
            actions += (_with_missing(action, missing) for action in overdue)
        elif torn := broken(deployment, mine):
            actions += (KillReplica(each.id, _LOST_ITS_GANG) for each in torn)
        elif deployment.target is None:
            if deployment.fallback is not None and not _others_settled(desired, key):
                # The rest of the application is not ready yet: the former version is kept alive.
                actions += _keep(deployment, deployment.fallback, mine, now)
            else:
                may_stop = turn_at(deployment, desired, replicas) <= now
                actions += _retire(deployment, mine, now, may_stop=may_stop)
        else:
            actions += _approach(deployment, deployment.target, mine, now)
    return actions


def next_wakeup(
    desired: Mapping[DeploymentKey, Desired],
    observed: ReplicaIndex,
    now: float,
) -> float | None:
    """Return the earliest time after ``now`` at which ``reconcile`` may have more to say."""
    replicas: Mapping[DeploymentKey, Sequence[Replica]] = {}
    if any(deployment.target is None for deployment in desired.values()):
        replicas = observed.by_deployment()
    times = [
        time
        for replica in observed.uneasy()
        if replica.key in desired
        for time, _ in _deadlines(replica)
    ]
    for key, deployment in desired.items():
        if deployment.forget_at is not None:
            times.append(deployment.forget_at)
        if deployment.target is not None and not _is_failed(deployment):
            times += (slot.start_not_before for slot in deployment.target.slots.values())
        if deployment.target is None and any(each.serves for each in replicas.get(key, ())):
            times.append(turn_at(deployment, desired, replicas))
    return min((time for time in times if now < time < math.inf), default=None)


def _grouped(replicas: Iterable[Replica]) -> dict[DeploymentKey, list[Replica]]:
    groups: dict[DeploymentKey, list[Replica]] = {}
    for replica in replicas:
        groups.setdefault(replica.key, []).append(replica)
    return groups


def _others_settled(desired: Mapping[DeploymentKey, Desired], key: DeploymentKey) -> bool:
    return all(
        other.is_settled() or other.target is None or _is_failed(other)
        for other_key, other in desired.items()
        if other_key.application == key.application and other_key != key
    )


def _is_failed(deployment: Desired) -> bool:
    """Whether the target was given up without a version to go back to."""
    return deployment.target is not None and deployment.target.failed


def _overdue(replicas: Sequence[Replica], now: float) -> Iterator[Action]:
    for replica in replicas:
        for time, action in _deadlines(replica):
            if time <= now:
                yield action
                break


def _missing_besides(
    key: DeploymentKey,
    desired: Mapping[DeploymentKey, Desired],
    replicas: Mapping[DeploymentKey, Sequence[Replica]],
) -> list[str]:
    """Return the application's other deployments that should serve and of which none does."""
    return [
        other.deployment
        for other, deployment in desired.items()
        if other.application == key.application
        and other != key
        and deployment.target is not None
        and not any(item.serves for item in replicas[other])
    ]


def _with_missing(action: Action, missing: Sequence[str]) -> Action:
    """Name what a replica that hangs may have called in vain."""
    if not isinstance(action, KillReplica) or action.failure is None or not missing:
        return action
    summary = (
        f"{action.failure.summary}; {' and '.join(missing)} had no replica yet: deployments that "
        "call each other while they start wait for each other"
    )
    return replace(action, failure=replace(action.failure, summary=summary))


def _deadlines(replica: Replica) -> Iterator[tuple[float, Action]]:
    """Yield the times at which something is due for the replica, unless other events come first."""
    options = replica.options
    match replica.phase:
        case Phase.STOPPING:
            if not replica.killed and replica.kill_at is not None:
                yield replica.kill_at, KillReplica(replica.id, "has used up its grace")
        case Phase.STARTING:
            limit_s = options.startup_timeout_s
            late = "its module or constructor hangs" if replica.pid else "its process has not begun"
            if not replica.pid and replica.options.pip:
                late = "its packages (pip) are not installed yet"
            if replica.waits_for and not replica.joined:
                late = f"it waits for {replica.waits_for}"
            summary = (
                f"replica {replica.id} was not ready after {limit_s:g} s; {late}, or "
                "startup_timeout_s is too small"
            )
            failure = Failure(summary, user_code=True)
            yield replica.created_at + limit_s, KillReplica(replica.id, "hangs", failure)
        case Phase.RUNNING:
            if replica.left_at is not None:
                yield (
                    replica.left_at + REJOIN_TIMEOUT_S,
                    KillReplica(replica.id, "left and did not join again"),
                )
            elif replica.hangs:
                limit_s = replica.silence_limit_s
                reason = f"has given no sign of life for {limit_s:g} s"
                yield -math.inf, KillReplica(replica.id, reason)
            else:
                allowed = max(HEALTH_FAILURES_MAX - replica.health_failures, 0)
                silence_s = options.health_check_period_s + options.health_check_timeout_s
                if replica.health_failures:
                    yield (
                        replica.health_at + allowed * silence_s,
                        StopReplica(
                            replica.id, options.graceful_shutdown_timeout_s, "is not healthy"
                        ),
                    )


def _keep(
    deployment: Desired, version: Version, replicas: Sequence[Replica], now: float
) -> Iterator[Action]:
    current = [item for item in replicas if item.version == version.id]
    yield from _start_missing(deployment, version, current, now, limit=None)


def _retire(
    deployment: Desired, replicas: Sequence[Replica], now: float, *, may_stop: bool
) -> Iterator[Action]:
    if not replicas:
        yield ForgetDeployment(deployment.key)
    left_s = math.inf if deployment.ends_by is None else max(deployment.ends_by - now, 0.0)
    for replica in _live(replicas):
        if may_stop or not replica.serves:
            yield _stop(replica, left_s)


def _approach(
    deployment: Desired, target: Version, replicas: Sequence[Replica], now: float
) -> Iterator[Action]:
    live = _live(replicas)
    current = [item for item in live if item.version == target.id]
    others = [item for item in live if item.version != target.id]
    if target.is_external:
        if others and _count_serving(current) >= max(_count_serving(others), 1):
            yield from map(_stop, others)
        if deployment.forget_at is not None and deployment.forget_at <= now:
            yield ForgetDeployment(deployment.key)
        return
    if _is_failed(deployment):
        yield from map(_stop, live)
        return
    failure = final_failure(target)
    if failure is not None:
        yield FailVersion(deployment.key, failure)
        return
    surplus = [item for item in current if item.slot >= target.num_replicas]
    kept = [item for item in current if 0 <= item.slot < target.num_replicas]
    serving = sum(item.serves for item in kept)
    ready = sum(item.in_rotation for item in kept)
    limit = starts_max(target, replicas)
    own = [item for item in replicas if item.version == target.id]
    yield from _start_missing(deployment, target, own, now, limit=limit)
    yield from map(_stop, surplus)
    yield from map(_stop, replaced(target, replicas, ready))
    if serving >= target.num_replicas and not others:
        leaving = any(
            item.version == target.id and item.slot >= target.num_replicas for item in replicas
        )
        is_scaled = target.reached != target.num_replicas and not leaving
        if not target.completed or is_scaled:
            yield CompleteVersion(deployment.key)


def _count_serving(replicas: Sequence[Replica]) -> int:
    return sum(item.serves for item in replicas)


def _live(replicas: Sequence[Replica]) -> list[Replica]:
    return [item for item in replicas if item.phase is not Phase.STOPPING]


def _start_missing(
    deployment: Desired,
    version: Version,
    current: Sequence[Replica],
    now: float,
    *,
    limit: int | None,
) -> Iterator[Action]:
    size = version.options.gang_size
    # The place of a gang is free when all of it has ended.
    taken = {item.slot for item in (current if size > 1 else _live(current))}
    # As those that raised, see below, so those that have not been tried: the first word of the
    # others says whether it is worth while.
    may_try = _is_proven(version) or not any(
        slot.failed_in_user_code for slot in version.slots.values()
    )
    missing = [
        index
        for index in range(version.num_replicas)
        if index not in taken
        and (
            _may_start_again(version, slot, now) if (slot := version.slots.get(index)) else may_try
        )
    ]
    missing = whole_gangs(missing, size)
    if limit is not None:
        missing = missing[: max(limit, 0) // size * size]
    for index in missing:
        yield StartReplica(deployment.key, version.id, index, gang_of(index, size))


def _may_start_again(version: Version, slot: Slot, now: float) -> bool:
    # While no replica was ever ready, one that raised waits for the others' first word: either
    # all of them fail and so does the version, or one is ready and another try is worth while.
    return slot.start_not_before <= now and (_is_proven(version) or not slot.failed_in_user_code)


def _is_proven(version: Version) -> bool:
    # One that was complete without a replica has nobody who could give it up.
    return version.proven or version.completed


def _stop(replica: Replica, left_s: float = math.inf) -> Action:
    # Also one whose stream is broken: routers reach it all the same, and it has their calls. One
    # that has joined may be in its constructor, and hold what its __del__ gives back.
    if replica.phase is Phase.RUNNING or replica.joined:
        grace_s = min(replica.options.graceful_shutdown_timeout_s, left_s)
        return StopReplica(replica.id, grace_s, NOT_NEEDED)
    return KillReplica(replica.id, NOT_NEEDED)


# Callers end before the deployments they call, so that calls in flight can finish.
#
# Callers are known from the handles among the arguments of constructors. A deployment that is to
# end keeps its replicas until those that call it, and are ending too, have ended; each tier has
# `CALLERS_END_TIMEOUT_S` for that at most. Callers that stay, that are not waited for any more, or
# that are called back by those they call, delay nothing.


def turn_at(
    deployment: Desired,
    desired: Mapping[DeploymentKey, Desired],
    replicas: Mapping[DeploymentKey, Sequence[Replica]],
) -> float:
    """Return when the replicas of a deployment that is to end may be stopped.

    Args:
        deployment: which one.
        desired: every deployment.
        replicas: of each of them.

    Returns:
        A time that may have passed, or infinity while that of its callers is not known.
    """
    limit = max(
        (
            math.inf if caller.stopping_at is None else caller.stopping_at + CALLERS_END_TIMEOUT_S
            for caller in _callers(deployment.key, desired, replicas)
        ),
        default=-math.inf,
    )
    return limit if deployment.ends_by is None else min(limit, deployment.ends_by)


def _callers(
    key: DeploymentKey,
    desired: Mapping[DeploymentKey, Desired],
    replicas: Mapping[DeploymentKey, Sequence[Replica]],
) -> Iterator[Replica]:
    """Yield the replicas that are ending, or about to, and may call ``key`` until then."""
    called = _called_from(key, replicas)
    for caller, items in replicas.items():
        if caller == key or caller in called:
            continue
        is_leaving = caller not in desired or desired[caller].target is None
        for item in items:
            if (
                key in item.calls
                and (is_leaving or item.phase is Phase.STOPPING)
                and item.options.graceful_shutdown_timeout_s > 0
            ):
                yield item


def _called_from(
    key: DeploymentKey, replicas: Mapping[DeploymentKey, Sequence[Replica]]
) -> set[DeploymentKey]:
    """Return the deployments that a deployment's replicas call, directly or through others."""
    found: set[DeploymentKey] = set()
    ahead = [key]
    while ahead:
        for item in replicas.get(ahead.pop(), ()):
            ahead += item.calls - found
            found |= item.calls
    return found
