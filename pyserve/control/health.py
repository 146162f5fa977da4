"""The health of each deployment and application: a word, a sentence, and since when. Pure.

The words are those of ``pyserve.driver.status``. A deployment comes up (``UPDATING``), is
``HEALTHY`` or ``UNHEALTHY``, has another number of replicas to reach (``UPSCALING``,
``DOWNSCALING``), or was given up (``DEPLOY_FAILED``). Among the deployments of an application the
worst one counts.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass

from pyserve.control.reconcile.rollout import takes_on
from pyserve.control.state.mesh import Desired, MeshState, Phase, Replica, Version
from pyserve.types import ApplicationName, DeploymentKey


@dataclass(frozen=True, slots=True)
class Health:
    """The health of a deployment or an application.

    Attributes:
        word: of the enumeration.
        reason: why, as people say it; never "".
        message: what they should look at; "" when nothing is the matter.
    """

    word: str
    reason: str
    message: str


def observe(state: MeshState, changing: Container[ApplicationName], now: float) -> None:
    """Update since when each condition has held.

    Args:
        state: of the mesh.
        changing: applications whose last deploy goes on in replicas that serve.
        now: Unix time, in seconds.
    """
    replicas = state.replicas.by_deployment()
    words: dict[ApplicationName | DeploymentKey, str] = {}
    healths: defaultdict[ApplicationName, list[Health]] = defaultdict(list)
    for key, desired in state.deployments.items():
        health = deployment_health(desired, replicas[key])
        words[key] = health.word
        healths[key.application].append(health)
    for name, parts in healths.items():
        words[name] = application_health(state, name, parts, changing).word
    state.on_observed(words, now=now)


def application_health(
    state: MeshState,
    name: ApplicationName,
    parts: Sequence[Health],
    changing: Container[ApplicationName],
) -> Health:
    """Return the health of an application.

    Args:
        state: of the mesh.
        name: of the application.
        parts: how its deployments are, in the order of ``state.of_application``.
        changing: as in ``observe``.
    """
    desired = list(state.of_application(name))
    said = [
        f"{item.key.deployment}: {part.message}"
        for item, part in zip(desired, parts, strict=True)
        if part.message
    ]
    message = "; ".join(said)
    words = {part.word for part in parts}
    if all(item.target is None for item in desired):
        return Health("DELETING", "its replicas finish what they have", message)
    if not _is_begun(state, desired):
        return Health("NOT_STARTED", message or "no replica of it has been started yet", message)
    for worst in ("DEPLOY_FAILED", "UNHEALTHY"):
        if worst in words:
            return Health(worst, message, message)
    if "UPDATING" in words or (name in changing and words & {"UPSCALING", "DOWNSCALING"}):
        return Health("DEPLOYING", message, message)
    return Health("RUNNING", message or "each of its deployments serves", message)


def _is_begun(state: MeshState, desired: Sequence[Desired]) -> bool:
    """Say whether a replica of the application was ever started, or none is needed."""
    versions = [item.target for item in desired if item.target is not None]
    application = desired[0].key.application
    return (
        any(version.slots or version.completed or version.failed for version in versions)
        or any(item.fallback is not None or item.target is None for item in desired)
        or any(replica.key.application == application for replica in state.replicas.values())
    )


def deployment_health(desired: Desired, replicas: Sequence[Replica], waits: str = "") -> Health:
    """Return the health of a deployment.

    Args:
        desired: the deployment.
        replicas: all of its replicas.
        waits: what people should know of starts that wait, or "".
    """
    failure = desired.failure.summary if desired.failure is not None else ""
    target = desired.target
    if target is None:
        return _told("UPDATING", "is being removed", waits)
    if target.failed:
        return _told("DEPLOY_FAILED", failure, waits)
    if failure:
        failure = f"the last deploy failed, the version before serves on: {failure}"
    if not target.completed:
        held = (*_cordoned(replicas), *_waiting(replicas))
        return _told("UPDATING", _progress(target, replicas), *held, waits)
    if takes_on(target, replicas):
        return _told("UPDATING", "replicas take another user_config on", waits)
    current = [item for item in replicas if item.version == target.id]
    serving = sum(item.serves and not item.silent for item in current)
    said = [*_waiting(replicas), *_ailments(replicas), failure]
    if target.is_external and not serving:
        if any(item.phase is Phase.STARTING for item in replicas):
            return _told("UPDATING", "replicas start", *said, waits)
        return _told("UNHEALTHY", "its replicas have gone without a word", *said, waits)
    if scaling := _scaling(target, current, serving):
        return _told(*scaling, waits, *said)
    others = sum(item.serves and item.version != target.id for item in replicas)
    if serving < target.num_replicas <= serving + others:
        said.insert(0, f"goes back: {serving} of {target.num_replicas} replicas serve again")
        return _told("UPDATING", *said, waits)
    if serving < target.num_replicas:
        missing = f"{serving} of {target.num_replicas} replicas serve"
        wanted = range(target.num_replicas)
        ends = dict.fromkeys(
            slot.last_end for index, slot in target.slots.items() if index in wanted
        )
        return _told("UNHEALTHY", missing, *ends, *said, waits)
    message = "; ".join(filter(None, (*said, *_cordoned(current), waits)))
    in_rotation = sum(item.in_rotation and not item.silent for item in current)
    if serving and not in_rotation:
        return _told("UNHEALTHY", "no replica is in rotation, and calls wait", message)
    plain = f"all {serving} replicas serve" if serving > 1 else "its replica serves"
    if not serving:
        plain = "no replica is wanted"
    elif in_rotation < serving:
        plain = f"{in_rotation} of {serving} replicas get calls"
    return Health("HEALTHY", "; ".join(filter(None, (plain, message))), message)


def replica_word(replica: Replica) -> str:
    """Return where a replica is in its life, or what is the matter with it."""
    if replica.phase is Phase.RUNNING and (replica.silent or not replica.joined):
        return "SILENT"
    if replica.phase is Phase.RUNNING and replica.health_failures:
        return "UNHEALTHY"
    if replica.serves and not replica.in_rotation:
        return "CORDONED"
    return replica.phase.value


def _told(word: str, *said: str) -> Health:
    message = "; ".join(filter(None, said))
    return Health(word, message, message)


def _progress(target: Version, replicas: Sequence[Replica]) -> str:
    """Say how far a version has come."""
    ready = sum(item.serves and item.version == target.id for item in replicas)
    older = sum(item.serves and item.version != target.id for item in replicas)
    of_it = " of the new version" if older else ""
    serve = f", {older} of the version before still serve" if older else ""
    why = ""
    if target.first_failure is not None:
        why = f"; failures: {target.start_failures}, the first one: {target.first_failure.summary}"
    return f"{ready} of {target.num_replicas} replicas{of_it} are ready{serve}{why}"


def _scaling(target: Version, current: Sequence[Replica], serving: int) -> tuple[str, str] | None:
    """Return the word and the sentence of a number of replicas that is not reached yet.

    One that gets fewer replicas than it had, or whose new ones do not come up, is not scaling.
    """
    wanted = target.num_replicas
    if serving < min(target.reached, wanted):
        return None
    why = f": {target.scaling.reason}" if target.scaling.reason else ""
    ending = sum(item.slot >= wanted for item in current)
    if ending:
        return (
            "DOWNSCALING",
            f"{ending} more than the {wanted} wanted replicas finish what they have{why}",
        )
    added = range(target.reached, wanted)
    if not added or any(
        slot.start_failures_in_a_row for index, slot in target.slots.items() if index in added
    ):
        return None
    return "UPSCALING", f"{serving} of {wanted} replicas serve, up from {target.reached}{why}"


def _cordoned(replicas: Sequence[Replica]) -> Iterator[str]:
    """Yield one line on those that were taken out of rotation."""
    out = [item.id for item in replicas if (item.cordoned or item.node_cordoned) and item.serves]
    if out:
        yield f"cordoned, so without calls: {', '.join(out)}"


def _waiting(replicas: Sequence[Replica]) -> Iterator[str]:
    """Yield what a launcher misses for replicas that do not run yet."""
    missed = Counter(
        item.waits_for
        for item in replicas
        if item.phase is Phase.STARTING and not item.joined and item.waits_for
    )
    for what, count in missed.items():
        yield f"{'a replica waits' if count == 1 else f'{count} replicas wait'} for {what}"


def _ailments(replicas: Sequence[Replica]) -> Iterator[str]:
    """Yield why replicas are about to be replaced, unless they recover."""
    for replica in replicas:
        if replica.is_calm and replica.joined and not replica.silent:
            continue
        if replica.phase is Phase.RUNNING and replica.silent:
            yield f"replica {replica.id} does not answer health checks"
        elif replica_word(replica) == "UNHEALTHY":
            yield f"replica {replica.id} fails its health check: {replica.ailment}"
