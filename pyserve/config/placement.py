"""Placement groups and gangs: whether what somebody wrote of them fits together.

It is checked where options are written, not where they are read: specs of releases that did not
ask for it go on serving.

Helpers that all replicas of a deployment share are placed beside them, by the name that Ray Serve
has for them.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pyserve.config.parts import REPLICAS_MAX, Part
from pyserve.config.validation import check_choice, check_integer, check_mapping, check_text, refuse

if TYPE_CHECKING:
    from pyserve.config.options import DeploymentOptions
    from pyserve.config.parts import Resources
    from pyserve.config.scaling import AutoscalingConfig


_BUNDLES = "placement_group_bundles"
_SELECTORS = "placement_group_bundle_label_selector"


def check_placement_group(options: DeploymentOptions) -> None:
    """Refuse what no placement group can be made of, or what needs one and has none.

    Raises:
        OptionError: The text has the option, its value and what is allowed.
    """
    bundles, selectors = options.placement_group_bundles, _selectors(options)
    if bundles is None:
        if options.placement_group_strategy != "PACK":
            what = f"PACK, or another one beside {_BUNDLES}, which it is about"
            raise refuse("placement_group_strategy", options.placement_group_strategy, what)
        if selectors:
            raise refuse(_SELECTORS, selectors, f"none without {_BUNDLES}, which it is about")
        return
    if not bundles or not all(any(bundle.values()) for bundle in bundles):
        what = "at least one mapping, each with an amount above 0, or none at all"
        raise refuse(_BUNDLES, bundles, what)
    if len(selectors) not in (0, 1, len(bundles)):
        raise refuse(
            _SELECTORS, selectors, f"one for all bundles, or one for each ({len(bundles)})"
        )
    for name, amount in _amounts(options.resources):
        if amount > bundles[0].get(name, 0):
            what = f"a first bundle with at least {name}={amount:g}: it holds the replica itself"
            raise refuse(_BUNDLES, bundles, what)


def _selectors(options: DeploymentOptions) -> list[Mapping[str, str]]:
    return list(options.placement_group_bundle_label_selector or ())


def _amounts(resources: Resources) -> Iterator[tuple[str, float]]:
    """Yield what a replica takes, by the names that bundles have."""
    yield "CPU", resources.num_cpus or 0
    yield "GPU", resources.num_gpus
    yield "memory", resources.memory or 0
    yield from resources.resources.items()


# Replicas that start in groups, each of which is whole or not there at all.


class GangPlacementStrategy(enum.StrEnum):
    """How the members of a gang lie together, as far as there is room for it."""

    PACK = "PACK"
    SPREAD = "SPREAD"


class GangRuntimeFailurePolicy(enum.StrEnum):
    """What becomes of a gang that loses a member. ``RESTART_REPLICA`` is refused, as in Ray."""

    RESTART_GANG = "RESTART_GANG"
    RESTART_REPLICA = "RESTART_REPLICA"


@dataclass(frozen=True, kw_only=True)
class GangSchedulingConfig(Part):
    """Groups of replicas that are placed together or not at all, and restart as a whole.

    Attributes:
        gang_size: replicas of each gang; numbers of replicas are multiples of it.
        gang_placement_strategy: ``PACK`` onto few nodes, or ``SPREAD`` over many, where possible.
        runtime_failure_policy: ``RESTART_GANG``: when a member ends, the others are ended too.
    """

    gang_size: int = 0
    gang_placement_strategy: str = GangPlacementStrategy.PACK
    runtime_failure_policy: str = GangRuntimeFailurePolicy.RESTART_GANG

    def __post_init__(self) -> None:
        check_integer(
            "gang_scheduling_config.gang_size", self.gang_size, minimum=1, maximum=REPLICAS_MAX
        )
        for name, choices in (
            ("gang_placement_strategy", GangPlacementStrategy),
            ("runtime_failure_policy", (GangRuntimeFailurePolicy.RESTART_GANG,)),
        ):
            # Members of an enumeration are texts of another type, which would travel as such.
            value = getattr(self, name)
            plain = str(value.value) if isinstance(value, enum.Enum) else value
            check_choice(f"gang_scheduling_config.{name}", plain, [each.value for each in choices])
            object.__setattr__(self, name, plain)

    def whole(self, count: int) -> int:
        """Return the least number of replicas from ``count`` on that makes whole gangs."""
        return -(-count // self.gang_size) * self.gang_size

    def check_counts(self, num_replicas: object, scaling: AutoscalingConfig | None) -> None:
        """Raise ``OptionError`` for a number of replicas that makes no whole gangs."""
        counts = {"num_replicas": num_replicas}
        if scaling is not None:
            names = ("min_replicas", "max_replicas", "initial_replicas")
            counts = {f"autoscaling_config.{name}": getattr(scaling, name) for name in names}
        for name, count in counts.items():
            if isinstance(count, int) and count % self.gang_size:
                raise refuse(name, count, f"a multiple of gang_size={self.gang_size}")


@dataclass(frozen=True, kw_only=True)
class DeploymentActorConfig(Part):
    """One object that all replicas of a deployment share; see ``pyserve.get_deployment_actor``.

    It lives in a process of its own from before the first replica until the deployment ends, is
    looked at like a replica, and is made anew when it fails, without its state.

    Attributes:
        name: Unique in the deployment.
        actor_class: The class, one that ``ray.remote`` has decorated, or an import path such as
            ``"package.module:Class"``; ``None``: as replicas know it, which need its name only.
        init_args: What its constructor gets.
        init_kwargs: The same by names.
        actor_options: ``num_cpus`` and others as ``ray_actor_options``, whose ``runtime_env`` comes
            on top of the deployment's; and ``max_concurrency``, how many calls it takes at once (by
            default 1, or 1000 if one of its methods is a coroutine).
    """

    name: str
    actor_class: object = None
    init_args: Sequence[object] = ()
    init_kwargs: Mapping[str, object] = field(default_factory=dict)
    actor_options: Mapping[str, object] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_text("deployment_actors.name", self.name, "a name, such as 'cache'")
        check_mapping("deployment_actors.init_kwargs", self.init_kwargs)
        check_mapping("deployment_actors.actor_options", self.actor_options)
        if not isinstance(self.init_args, list | tuple):
            raise refuse("deployment_actors.init_args", self.init_args, "a list of arguments", list)
        object.__setattr__(self, "init_args", tuple(self.init_args))


def deployment_name(owner: str, actor_name: str) -> str:
    """Return the name of the deployment that a helper of another one is."""
    return f"{owner}.{actor_name}"


def read_actors(value: object) -> tuple[DeploymentActorConfig, ...]:
    """Read the option ``deployment_actors``.

    Raises:
        OptionError: It is no list, an entry is none, or two have the same name.
    """
    if value is None:
        return ()
    if not isinstance(value, Sequence) or isinstance(value, str | bytes):
        raise refuse("deployment_actors", value, "a list of DeploymentActorConfig", list)
    found = tuple(DeploymentActorConfig.of("deployment_actors", each) for each in value)
    names = [each.name for each in found]
    if repeated := {name for name in names if names.count(name) > 1}:
        raise refuse("deployment_actors", sorted(repeated), "a name of its own for each")
    return found
