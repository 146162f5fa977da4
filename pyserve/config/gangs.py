"""Replicas that start in groups, each of which is whole or not there at all."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyserve.config.parts import REPLICAS_MAX, Part
from pyserve.config.validation import check_choice, check_integer, refuse

if TYPE_CHECKING:
    from pyserve.config.scaling import AutoscalingConfig


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
