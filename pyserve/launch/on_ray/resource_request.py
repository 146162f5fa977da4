"""A replica's resource request in Ray's terms, and the node that fits it best. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from pyserve.config import DeploymentOptions
from pyserve.control.replicas.launching import Gang, ReplicaOrder

# As Ray Serve's replicas, so that as many come to lie on a node.
_CPUS_DEFAULT = 1.0
# Ray's names of what has options of its own.
_CPU, _GPU, _MEMORY = "CPU", "GPU", "memory"
_ACCELERATOR = "accelerator_type:"
# Ray asks for a trace of the resource that says which device a node has.
_TRACE = 0.001
# Each node has one of whatever has such a name, so that shares of it bound how many of something
# lie there; of Ray's own Serve too (``ray._raylet.IMPLICIT_RESOURCE_PREFIX``).
_OF_EACH_NODE = "node:__internal_implicit_resource_"


@dataclass(frozen=True, slots=True)
class Node:
    """One node of a cluster, as it is when nothing runs there.

    Attributes:
        id: of Ray.
        address: of its machine.
        resources: amounts by Ray's names.
    """

    id: str
    address: str
    resources: Mapping[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceRequest:
    """What one replica asks for.

    Attributes:
        actor: options of its actor.
        bundles: of its placement group, with those of its whole gang; none: it has no such group.
        strategy: how the bundles lie together.
        bundle_labels: labels of the nodes for the bundles, in their order.
        bundle: the one in which its actor lies.
        gang: whose placement group that is; "": its own.
        working_dir: of this machine, to be uploaded; "": none.
        per_node: how many of its like may lie on a node; 0: any number.
        amounts: what its actor takes of a node.
        share: what it takes besides of what each node has one of, for ``per_node``.
    """

    actor: Mapping[str, object]
    bundles: Sequence[Mapping[str, float]] = ()
    strategy: str = "PACK"
    bundle_labels: Sequence[Mapping[str, str]] = ()
    bundle: int = 0
    gang: str = ""
    working_dir: str = ""
    per_node: int = 0
    amounts: Mapping[str, float] = field(default_factory=dict)
    share: Mapping[str, float] = field(default_factory=dict)

    def shortage(self, nodes: Sequence[Node]) -> str:
        """Return why no node could ever hold it, "" if one could."""
        for amounts in self.bundles or (self.amounts,):
            if not any(_fits(amounts, node) for node in nodes):
                return (
                    f"no node of the Ray cluster has {_told(amounts)}; {_largest(amounts, nodes)}"
                )
        return ""

    def told(self) -> str:
        """Return in words what is asked for."""
        if self.bundles:
            whose = "of its gang, " if self.gang else ""
            return f"room for the bundles {whose}{', '.join(map(_told, self.bundles))}"
        few = f" and fewer than {self.per_node} of its deployment" if self.per_node else ""
        return f"a node with {_told(self.amounts)} left{few}"


def requested_of(order: ReplicaOrder) -> ResourceRequest:
    """Return what a replica asks for."""
    options, wanted = order.options or DeploymentOptions(), order.resources
    bundles = [dict(each) for each in options.placement_group_bundles or ()]
    # Of the first bundle, in which the actor lies, no more than is there.
    cpus = min(_CPUS_DEFAULT, bundles[0].get(_CPU, 0.0)) if bundles else _CPUS_DEFAULT
    if wanted.num_cpus is not None:
        cpus = wanted.num_cpus
    actor: dict[str, object] = {"num_cpus": cpus, "num_gpus": wanted.num_gpus}
    amounts = {_CPU: cpus, _GPU: wanted.num_gpus, **wanted.resources}
    if wanted.memory is not None:
        actor["memory"] = amounts[_MEMORY] = wanted.memory
    if wanted.accelerator_type is not None:
        actor["accelerator_type"] = wanted.accelerator_type
        amounts[f"{_ACCELERATOR}{wanted.accelerator_type}"] = _TRACE
    share = _share_of_node(order, options)
    if custom := {**wanted.resources, **share}:
        actor["resources"] = custom
    if wanted.label_selector is not None:
        actor["label_selector"] = dict(wanted.label_selector)
    if wanted.fallback_strategy is not None:
        actor["fallback_strategy"] = [dict(each) for each in wanted.fallback_strategy]
    if environment := _environment(order):
        actor["runtime_env"] = environment
    made = ResourceRequest(
        actor=actor,
        bundles=bundles,
        strategy=options.placement_group_strategy,
        bundle_labels=[dict(each) for each in options.placement_group_bundle_label_selector or ()],
        working_dir=options.working_dir or "",
        per_node=options.max_replicas_per_node or 0,
        amounts={name: amount for name, amount in amounts.items() if amount},
        share=share,
    )
    return made if order.gang is None else _of_gang(made, order.gang)


def _of_gang(one: ResourceRequest, gang: Gang) -> ResourceRequest:
    """Return what a member asks for: the bundles of all of them are one placement group."""
    actor = dict(one.actor)
    bundles, labels = one.bundles or [one.amounts], one.bundle_labels
    # Within a group Ray looks at the labels of bundles.
    selector = actor.pop("label_selector", None)
    if not one.bundles and isinstance(selector, Mapping):
        labels = [selector]
    return replace(
        one,
        actor=actor,
        bundles=[*bundles] * gang.size,
        bundle_labels=[*labels] * gang.size,
        strategy=gang.strategy,
        bundle=gang.rank * len(bundles),
        gang=gang.id,
    )


def _share_of_node(order: ReplicaOrder, options: DeploymentOptions) -> dict[str, float]:
    """Return what bounds the replicas of a version on each node."""
    if options.max_replicas_per_node is None:
        return {}
    name = f"{order.key.application}:{order.key.deployment}:{order.version}"
    return {f"{_OF_EACH_NODE}{name}": 1 / options.max_replicas_per_node}


def _environment(order: ReplicaOrder) -> dict[str, object]:
    """Return Ray's ``runtime_env``, with the same names, except for folders of this machine."""
    found: dict[str, object] = {}
    if order.environment:
        found["env_vars"] = dict(order.environment)
    if order.requirements:
        found["pip"] = list(order.requirements)
    return found


def _fits(amounts: Mapping[str, float], node: Node) -> bool:
    return all(node.resources.get(name, 0.0) >= amount for name, amount in amounts.items())


def _told(amounts: Mapping[str, float]) -> str:
    return " and ".join(f"{name} {amount:g}" for name, amount in sorted(amounts.items())) or "room"


def _largest(amounts: Mapping[str, float], nodes: Sequence[Node]) -> str:
    if not nodes:
        return "it has no node that lives"
    most = {name: max(each.resources.get(name, 0.0) for each in nodes) for name in amounts}
    return f"the most that one has: {_told(most)}"


# Chooses nodes of a Ray cluster for replicas so that few nodes are used.
#
# Best fit: a node in use before an idle one, and among those the node with the least left (Johnson
# 1974, "Fast algorithms for bin packing"; Ray Serve's PACK strategy does the same). So nodes fill
# up one after the other, the last that were used become idle first, and a cluster that removes idle
# nodes can do so.

Amounts = Mapping[str, float]
# A node has other work on it if it has less of these than it could have.
_COUNTED = ("CPU", "GPU")
# Ray counts in ten-thousandths; sums of floats miss by less.
_UNIT = 1e-4


class Packing:
    """Where replicas have been placed; the cluster shows their resources only some time later."""

    def __init__(self) -> None:
        self._places: dict[str, tuple[str, Amounts]] = {}

    def place(
        self,
        replica_id: str,
        requested: ResourceRequest,
        nodes: Sequence[Node],
        free: Mapping[str, Amounts],
    ) -> str:
        """Choose the node of a replica, and count it there.

        Args:
            replica_id: of the replica.
            requested: what it asks for.
            nodes: those that live.
            free: what the cluster says is left, by the ids of nodes.

        Returns:
            The id of the node; "": none has room, or its labels or its bundles say where it lies.
        """
        if requested.bundles or requested.actor.keys() & {"label_selector", "fallback_strategy"}:
            return ""
        amounts = {**requested.amounts, **requested.share}
        best: tuple[bool, float, str] | None = None
        for node in nodes:
            # Of a share every node has one, which the cluster does not tell.
            whole = {**dict.fromkeys(_COUNTED, 0.0), **node.resources, **_ones(requested.share)}
            said = {**free.get(node.id, {}), **_ones(requested.share)}
            taken = self._taken(node.id)
            # We know our own replicas at once; the cluster shows all of them some time later.
            left = {
                name: min(whole.get(name, 0.0) - taken[name], said.get(name, 0.0))
                for name in {*_COUNTED, *amounts}
            }
            if any(left[name] + _UNIT < amount for name, amount in amounts.items()):
                continue
            is_idle = all(left[name] + _UNIT >= whole[name] for name in left)
            after = min(
                ((left[name] - amount) / whole[name] for name, amount in amounts.items()),
                default=1.0,
            )
            best = min(best or (True, 2.0, ""), (is_idle, after, node.id))
        chosen = best[2] if best else ""
        if chosen:
            self._places[replica_id] = chosen, amounts
        return chosen

    def leave(self, replica_id: str) -> None:
        """Forget a replica. Idempotent."""
        self._places.pop(replica_id, None)

    def _taken(self, node: str) -> Counter[str]:
        taken: Counter[str] = Counter()
        for place, amounts in self._places.values():
            if place == node:
                taken.update(amounts)
        return taken


def _ones(names: Amounts) -> dict[str, float]:
    return dict.fromkeys(names, 1.0)
