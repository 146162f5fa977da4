"""Another ``user_config`` for replicas that serve: who is told, who has taken it on. Pure.

A deploy that changes it ends when every replica has taken it on. Where one refuses, the whole
application goes back to what it had before; a replica that refuses even that is replaced.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from pyserve.config import DeploymentOptions
from pyserve.config.control import HEALTH_FAILURES_MAX
from pyserve.control.state import EXTERNAL_SLOT, Failure, MeshState, Phase, Replica
from pyserve.types import ApplicationName, DeploymentKey
from pyserve.wire.v1 import mesh_pb2


@dataclass(frozen=True, slots=True)
class Former:
    """What a deployment had before a change that its replicas take on."""

    options: DeploymentOptions
    spec: mesh_pb2.DeploymentSpec


@dataclass(slots=True)
class Reconfiguring:
    """The applications whose replicas are taking another configuration on."""

    former: dict[ApplicationName, dict[DeploymentKey, Former]] = field(default_factory=dict)

    def begin(
        self, state: MeshState, application: ApplicationName, former: Mapping[DeploymentKey, Former]
    ) -> None:
        """A change has begun; what was before the first one that goes on is remembered."""
        targets = {key: state.deployments[key].target for key in former}
        if all(
            target is None
            or target.options.user_config_json == former[key].options.user_config_json
            for key, target in targets.items()
        ):
            return
        for target in targets.values():
            if target is not None:
                target.first_failure = None  # Of one that starts with the change, from here on.
        self.former[application] = {**former, **self.former.get(application, {})}

    def end(self, application: ApplicationName) -> dict[DeploymentKey, Former]:
        """Forget a change; return what was before it."""
        return self.former.pop(application, {})

    def settle(self, state: MeshState) -> None:
        """Forget the changes that every replica has taken on."""
        for application in list(self.former):
            if all(_is_taken_on(state, key) for key in self.former[application]):
                del self.former[application]

    def refused(self, state: MeshState) -> tuple[DeploymentKey, Failure] | None:
        """Return a deployment of which a replica refuses the change that goes on, and why."""
        for keys in self.former.values():
            for key in keys:
                failures = [item.refusal for item in _current(state, key) if item.refusal]
                target = state.deployments[key].target
                if target is not None and (first := target.first_failure) and first.user_code:
                    failures.append(first)
                if failures:
                    return key, failures[0]
        return None

    def replace_unfit(self, state: MeshState) -> None:
        """Let those be replaced that refuse what the others have."""
        for replica in list(state.replicas.values()):
            if replica.refusal is None or replica.key.application in self.former:
                continue
            reason, replica.refusal = replica.refusal.summary, None
            for _ in range(HEALTH_FAILURES_MAX):
                state.on_health(replica.id, healthy=False, now=replica.health_at, reason=reason)


def untold(state: MeshState) -> Iterator[Replica]:
    """Yield the replicas that have to be told their configuration."""
    for replica in state.replicas.values():
        version = state.version_of(replica.key, replica.version)
        if version is None or not replica.serves:
            continue
        if version.config not in (replica.config, replica.config_told):
            yield replica


def takes_on(state: MeshState, key: DeploymentKey) -> bool:
    """Say whether a replica that serves has not taken on yet what it shall."""
    target = state.deployments[key].target
    return target is not None and any(
        item.serves and item.config != target.config for item in _current(state, key)
    )


def on_reconfigured(replica: Replica, answer: mesh_pb2.Reconfigured) -> None:
    """A replica has taken a configuration on, or says why not."""
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
