"""Placement groups and gangs: whether what somebody wrote of them fits together.

It is checked where options are written, not where they are read: specs of releases that did not
ask for it go on serving.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyserve.config.parts import REPLICAS_MAX, Part
from pyserve.config.validation import check_choice, check_integer, refuse

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
