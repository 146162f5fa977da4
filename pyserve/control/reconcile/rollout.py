"""How a version or a configuration replaces an older one that serves. Pure.

Rules of versions, each of which a test can break:

- If ``max_surge_percent`` is 0, new replicas start in steps of ``rolling_update_percentage`` of the
  wanted number, at least one, and each replaces an old one when it serves.
- If it is more, new replicas start while there are fewer processes, draining ones included, than
  the wanted number plus that share of it; old ones drain in steps of
  ``rolling_update_percentage``.
- An old replica drains only when a new one serves in its place, so that as many serve as before,
  or as are wanted where that is less.
- Steps and shares are rounded up to whole gangs, and gangs drain as a whole.
- A version is given up when every slot that was tried has failed before any replica was ever
  ready, or when it has failed too often before it was complete: at a start, or, while there is
  something to go back to, by a replica that ended within a minute of its service.

A configuration changes without another version, so that the running replicas stay: who gets it and
has applied it. A new ``user_config`` is applied to the replicas in steps of
``rolling_update_percentage``.

A deploy that changes the ``user_config`` or the number of replicas ends when all wanted replicas
are there, and each has applied its configuration. If one refuses, or others do not come up, the
whole application goes back to its former configuration; a replica that refuses even that is
replaced.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby

from pyserve.config import DeploymentOptions
from pyserve.config.control import HEALTH_FAILURES_MAX, SILENT_START_FAILURES_MAX
from pyserve.control.state.mesh import Desired, MeshState, Phase, Replica, Version
from pyserve.control.state.replica import EXTERNAL_SLOT, Failure, Slot
from pyserve.types import ApplicationName, DeploymentKey, ReplicaId
from pyserve.wire.v1 import mesh_pb2


def starts_max(target: Version, replicas: Sequence[Replica]) -> int | None:
    """Return how many replicas of the target may start now; ``None``: all that are missing.

    Args:
        target: the version that comes up.
        replicas: all of its deployment.
    """
    older = [
        item for item in replicas if item.version != target.id and item.phase is not Phase.STOPPING
    ]
    if not any(item.serves for item in older):
        return None
    if not (surge := _surge(target)):
        starting = sum(
            item.version == target.id and item.phase is Phase.STARTING for item in replicas
        )
        return max(step_of(target) - starting, 0)
    processes = sum(item.slot != EXTERNAL_SLOT for item in replicas)
    # Those that start are given up, and allow no more beside them.
    own = sum(item.slot != EXTERNAL_SLOT and item.phase is Phase.RUNNING for item in older)
    return max(max(target.num_replicas, own) + surge - processes, 0)


def replaced(target: Version, replicas: Sequence[Replica], ready: int) -> list[Replica]:
    """Return those replicas of older versions that are to end now.

    Args:
        target: the version that comes up.
        replicas: all of its deployment.
        ready: how many of the target's slots have one that gets calls.
    """
    older = [item for item in replicas if item.version != target.id]
    live = [item for item in older if item.phase is not Phase.STOPPING]
    starting = [item for item in live if item.phase is Phase.STARTING]
    wanted = target.num_replicas
    if ready == 0 and wanted:
        return starting
    # Cordoned replicas get no calls, so they go first.
    others = sorted(
        (item for item in live if item.phase is not Phase.STARTING),
        key=lambda item: (item.in_rotation, item.created_at),
    )
    if ready < wanted:
        others = [item for item in others if item.serves]
        needed = sum(item.in_rotation for item in others) - (wanted - ready)
        out = sum(not item.in_rotation for item in others)
        others = only_whole(others, live, out + max(needed, 0))
    if _surge(target):
        draining = sum(item.phase is Phase.STOPPING for item in older)
        others = only_whole(others, live, max(step_of(target) - draining, 0))
    return starting + others


def final_failure(version: Version) -> Failure | None:
    """Return why the version will never come up, or ``None`` while it may."""
    if version.completed or version.first_failure is None:
        return None
    # Of a gang one that fails is enough: the others are ended for it.
    hopeless = all(
        any(map(_has_failed, slots)) for slots in grouped(version.slots, version.options.gang_size)
    )
    if (hopeless and not version.proven) or version.start_failures >= version.start_failures_max:
        return version.first_failure
    return None


def _has_failed(slot: Slot) -> bool:
    return slot.failed_in_user_code or slot.start_failures_in_a_row >= SILENT_START_FAILURES_MAX


def step_of(target: Version) -> int:
    """Return how many of its replicas change at once: ``rolling_update_percentage`` of them."""
    share = math.ceil(target.options.rolling_update_percentage * target.num_replicas)
    return target.options.whole_gangs(max(share, 1))


def _surge(target: Version) -> int:
    """Return how many processes may exist beyond the wanted number; 0: not configured."""
    share = math.ceil(target.options.max_surge_percent * target.num_replicas / 100)
    return target.options.whole_gangs(share)


# Gangs of a version's replicas, and the members of incomplete ones.
#
# The slots 0 ... n-1 of a version make gangs in their order. What starts is a whole gang, so one
# with fewer members has lost some.


def gang_of(slot: int, size: int) -> int | None:
    """Return the number of the gang of a slot; ``None``: it starts alone."""
    return slot // size if size > 1 else None


def whole_gangs(slots: Sequence[int], size: int) -> list[int]:
    """Return those of the slots, in ascending order, whose gang has all of its slots there."""
    gangs = (list(group) for _, group in groupby(slots, lambda each: each // size))
    return [each for gang in gangs if len(gang) == size for each in gang]


def grouped(slots: Mapping[int, Slot], size: int) -> Iterable[list[Slot]]:
    """Yield the slots of each gang."""
    for _, group in groupby(sorted(slots), lambda each: each // size):
        yield [slots[each] for each in group]


def broken(deployment: Desired, replicas: Sequence[Replica]) -> list[Replica]:
    """Return the replicas that have lost one of their gang and are not told to end yet.

    Args:
        deployment: where it is to end, they end in their order like all others.
        replicas: all of the deployment.
    """
    versions = [each for each in (deployment.target, deployment.fallback) if each is not None]
    if all(each.options.gang_size == 1 for each in versions):
        return []
    return [
        each
        for (_, _, size), members in _gangs(replicas).items()
        if len(members) < size
        for each in members
    ]


def only_whole(chosen: Sequence[Replica], live: Sequence[Replica], limit: int) -> list[Replica]:
    """Return the first of ``chosen``, as many as the limit, but no part of a gang.

    Args:
        chosen: those to end, in the order in which they should.
        live: all that have not been told to end.
        limit: how many may end.
    """
    gangs = _gangs(live)
    of = {each.id: members for members in gangs.values() for each in members}
    may = {each.id for each in chosen}
    found: dict[str, Replica] = {}
    for each in chosen:
        together = of.get(each.id, [each])
        if each.id in found or any(other.id not in may for other in together):
            continue
        if len(found) + len(together) <= limit:
            found.update((other.id, other) for other in together)
    return list(found.values())


def _gangs(replicas: Sequence[Replica]) -> dict[tuple[str, int, int], list[Replica]]:
    """Return the members of each gang that have not been told to end."""
    gangs: dict[tuple[str, int, int], list[Replica]] = {}
    for each in replicas:
        size = each.options.gang_size
        if size > 1 and each.slot != EXTERNAL_SLOT and each.phase is not Phase.STOPPING:
            gangs.setdefault((each.version, each.slot // size, size), []).append(each)
    return gangs


@dataclass(frozen=True, slots=True)
class Former:
    """A version's configuration before the change that its replicas are applying."""

    version: str
    options: DeploymentOptions
    spec: mesh_pb2.DeploymentSpec


@dataclass(slots=True)
class Reconfiguring:
    """The applications whose replicas are changing."""

    former: dict[ApplicationName, dict[DeploymentKey, Former]] = field(default_factory=dict)

    def begin(
        self, state: MeshState, application: ApplicationName, former: Mapping[DeploymentKey, Former]
    ) -> None:
        """A change has begun; the configuration before the first pending one is remembered."""
        targets = {key: state.deployments[key].target for key in former}
        if not any(
            target is not None
            and (_changes_config(former[key], target) or _scales(former[key], target))
            for key, target in targets.items()
        ):
            return
        for target in targets.values():
            if target is not None:
                # Of those that start with the change, from here on.
                target.first_failure, target.start_failures = None, 0
        self.former[application] = {**former, **self.former.get(application, {})}

    def end(self, application: ApplicationName) -> dict[DeploymentKey, Former]:
        """Forget a change; return the configuration before it."""
        return self.former.pop(application, {})

    def settle(self, state: MeshState) -> None:
        """Forget the changes that every replica has applied."""
        for application in list(self.former):
            if all(_is_taken_on(state, key) for key in self.former[application]):
                del self.former[application]

    def taken_back(self, state: MeshState) -> dict[DeploymentKey, Former]:
        """Give up a change that a replica refuses; return its application's former state."""
        refused = self._refused(state)
        if refused is None:
            return {}
        blamed, failure = refused
        state.deployments[blamed].failure = failure
        former = self.end(blamed.application)
        for replica in state.replicas.values():
            if replica.key in former:
                replica.refusal = None
        return former

    def tell(self, state: MeshState) -> Iterator[tuple[ReplicaId, mesh_pb2.Reconfigure]]:
        """Yield the configurations to send; replicas that refuse what others have are replaced."""
        self._replace_unfit(state)
        for replica, version in _untold(state):
            replica.config_told, replica.refusal = version.config, None
            yield (
                replica.id,
                mesh_pb2.Reconfigure(
                    config=version.config, user_config_json=version.options.user_config_json
                ),
            )

    def _refused(self, state: MeshState) -> tuple[DeploymentKey, Failure] | None:
        """Return a deployment that does not apply the pending change, and why."""
        for former in self.former.values():
            for key in former:
                failures = [item.refusal for item in _current(state, key) if item.refusal]
                target = state.deployments[key].target
                if target is not None and (first := target.first_failure) is not None:
                    # A constructor may fail for once, but not with a configuration that is new.
                    is_new = _changes_config(former[key], target) or not target.proven
                    if (is_new and first.user_code) or (
                        target.start_failures >= target.start_failures_max
                    ):
                        failures.append(first)
                if failures:
                    return key, failures[0]
        return None

    def _replace_unfit(self, state: MeshState) -> None:
        for replica in state.replicas.uneasy():
            if replica.refusal is None or replica.key.application in self.former:
                continue
            reason, replica.refusal = replica.refusal.summary, None
            for _ in range(HEALTH_FAILURES_MAX):
                state.on_health(replica.id, healthy=False, now=replica.health_at, reason=reason)


def _changes_config(former: Former, target: Version) -> bool:
    return target.options.user_config_json != former.options.user_config_json


def _scales(former: Former, target: Version) -> bool:
    return target.options.initial_num_replicas != former.options.initial_num_replicas


def _untold(state: MeshState) -> Iterator[tuple[Replica, Version]]:
    """Yield the replicas to which to send their configuration now.

    As many of a version apply one at once as an update replaces, since a replica that reloads
    something may not answer calls meanwhile.
    """
    for key, desired in state.deployments.items():
        for version in (desired.target, desired.fallback):
            # With the first one, which has the number 0, each of them was made.
            if version is None or not version.config:
                continue
            others = [
                item
                for item in state.of_deployment(key)
                if item.version == version.id and item.serves and item.config != version.config
            ]
            untold = [item for item in others if item.config_told != version.config]
            # First those that are busy with an older one already.
            untold.sort(key=lambda item: item.config_told <= item.config)
            places = max(step_of(version) - (len(others) - len(untold)), 0)
            yield from ((item, version) for item in untold[:places])


def takes_on(target: Version, replicas: Iterable[Replica]) -> bool:
    """Say whether a replica that serves has yet to apply its target's configuration."""
    return any(
        item.config != target.config and item.version == target.id and item.serves
        for item in replicas
    )


def on_reconfigured(replica: Replica, answer: mesh_pb2.Reconfigured) -> None:
    """A replica has applied a configuration, or reports why it has not."""
    if answer.config != replica.config_told:
        return
    if answer.summary:
        replica.refusal = Failure(answer.summary, answer.traceback, user_code=True)
    else:
        replica.config = answer.config


def _current(state: MeshState, key: DeploymentKey) -> list[Replica]:
    desired = state.deployments.get(key)
    if desired is None or desired.target is None:
        return []
    version = desired.target.id
    return [
        item
        for item in state.of_deployment(key)
        if item.version == version and item.phase is Phase.RUNNING
    ]


def _is_taken_on(state: MeshState, key: DeploymentKey) -> bool:
    desired = state.deployments.get(key)
    if desired is None or desired.target is None:
        return True
    target = desired.target
    fit = [
        item
        for item in _current(state, key)
        if item.serves and item.config == target.config and item.slot != EXTERNAL_SLOT
    ]
    return len(fit) >= target.num_replicas
