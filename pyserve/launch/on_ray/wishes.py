"""What a replica asks of a Ray cluster, in Ray's words, and whether some node has it. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pyserve.config import DeploymentOptions
from pyserve.control.replicas.launching import ReplicaOrder

# As Ray Serve's replicas, so that as many come to lie on a node.
_CPUS_DEFAULT = 1.0
# Ray's names of what has options of its own.
_CPU, _GPU, _MEMORY = "CPU", "GPU", "memory"
_ACCELERATOR = "accelerator_type:"
# Ray asks for a trace of the resource that says which device a node has.
_TRACE = 0.001


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
class Wishes:
    """What one replica asks for.

    Attributes:
        actor: options of its actor.
        bundles: of its placement group; none: it has no such group.
        strategy: how the bundles lie together.
        bundle_labels: labels of the nodes for the bundles, in their order.
    """

    actor: Mapping[str, object]
    bundles: Sequence[Mapping[str, float]] = ()
    strategy: str = "PACK"
    bundle_labels: Sequence[Mapping[str, str]] = ()
    _amounts: Mapping[str, float] = field(default_factory=dict)

    def shortage(self, nodes: Sequence[Node]) -> str:
        """Return why no node could ever hold it, "" if one could."""
        for amounts in self.bundles or (self._amounts,):
            if not any(_fits(amounts, node) for node in nodes):
                return (
                    f"no node of the Ray cluster has {_told(amounts)}; {_largest(amounts, nodes)}"
                )
        return ""

    def told(self) -> str:
        """Return in words what is asked for."""
        if self.bundles:
            return f"room for the bundles {', '.join(map(_told, self.bundles))}"
        return f"a node with {_told(self._amounts)} left"


def wishes_of(order: ReplicaOrder) -> Wishes:
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
    if wanted.resources:
        actor["resources"] = dict(wanted.resources)
    if wanted.label_selector is not None:
        actor["label_selector"] = dict(wanted.label_selector)
    if wanted.fallback_strategy is not None:
        actor["fallback_strategy"] = [dict(each) for each in wanted.fallback_strategy]
    if environment := _environment(order):
        actor["runtime_env"] = environment
    return Wishes(
        actor=actor,
        bundles=bundles,
        strategy=options.placement_group_strategy,
        bundle_labels=[dict(each) for each in options.placement_group_bundle_label_selector or ()],
        _amounts={name: amount for name, amount in amounts.items() if amount},
    )


def _environment(order: ReplicaOrder) -> dict[str, object]:
    """Return Ray's ``runtime_env``, which has the same names.

    Folders are not among them: Ray uploads those of whole jobs only.
    """
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
