"""Configuration changes that keep the running replicas: who gets and has applied them. Pure.

A new ``user_config`` is applied to the replicas in steps of ``rolling_update_percentage``.

A deploy that changes the ``user_config`` or the number of replicas ends when all wanted replicas
are there, and each has applied its configuration. If one refuses, or others do not come up, the
whole application goes back to its former configuration; a replica that refuses even that is
replaced.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from pyserve.config import DeploymentOptions
from pyserve.config.control import HEALTH_FAILURES_MAX
from pyserve.control.reconcile.rollout import step_of
from pyserve.control.state.mesh import EXTERNAL_SLOT, Failure, MeshState, Phase, Replica, Version
from pyserve.types import ApplicationName, DeploymentKey, ReplicaId
from pyserve.wire.v1 import mesh_pb2


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
