"""A share of what a file asks for: fewer replicas of all its deployments at once. Pure.

An outer controller moves load from one mesh to another in steps, and tells each how much of its
configuration it needs: ``target_capacity``, in percent. The numbers that follow are worked out
when a deploy is let in; from there on they are ordinary numbers of replicas and bounds.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from pyserve.config import AutoscalingConfig, DeploymentOptions
from pyserve.errors import UsageError
from pyserve.wire.v1 import mesh_pb2

_ALL = 100.0


class Direction(enum.Enum):
    """Where a share has last moved."""

    UP = "UP"
    DOWN = "DOWN"


@dataclass(frozen=True, slots=True)
class Capacity:
    """The share of an application.

    Attributes:
        percent: from 0 to 100; None: not set, and all of it runs.
        direction: where it moved; None: nowhere, or not set.
    """

    percent: float | None = None
    direction: Direction | None = None

    def moved_to(self, percent: float | None, *, is_same: bool) -> Capacity:
        """Return the share that the next deploy asks for.

        Args:
            percent: of the deploy.
            is_same: the file says of the application what it said before.

        Raises:
            UsageError: it is no share.
        """
        if percent is not None and not 0 <= percent <= _ALL:  # NaN is not, either
            raise UsageError(f"target_capacity={percent:g} is not allowed; from 0 to 100")
        if percent is None:
            return Capacity()
        if not is_same:
            # Whatever is new takes load over, and that grows.
            return Capacity(percent, Direction.UP)
        if percent == self.percent:
            return self
        whole = _ALL if self.percent is None else self.percent
        # From none to 100 nothing changes but the word: as in Ray Serve that is the way down.
        return Capacity(percent, Direction.UP if percent > whole else Direction.DOWN)

    def of(self, number: int) -> int:
        """Return the share of a number of replicas: halves round up, and 1 is the least.

        There are none only where none were asked for, or none are to be.
        """
        if self.percent is None:
            return number
        if not self.percent or not number:
            return 0
        return max(math.floor(Fraction(self.percent) * number / 100 + Fraction(1, 2)), 1)

    def applied(self, specs: Sequence[mesh_pb2.DeploymentSpec]) -> list[mesh_pb2.DeploymentSpec]:
        """Return deployments with the numbers of replicas that are their share.

        Raises:
            OptionError: an option is not allowed.
        """
        if self.percent in (None, _ALL):
            return list(specs)
        found = []
        for spec in specs:
            scaled = mesh_pb2.DeploymentSpec()
            scaled.CopyFrom(spec)
            scaled.options_json = self._options(
                DeploymentOptions.from_json(spec.options_json)
            ).to_json()
            found.append(scaled)
        return found

    def _options(self, options: DeploymentOptions) -> DeploymentOptions:
        scaling = options.scaling
        if not self.percent:
            # No load, and no call that waits, may start any.
            return replace(options, num_replicas=0, autoscaling_config=None)
        if scaling is not None:
            return replace(options, autoscaling_config=self._scaling(scaling, options))
        assert isinstance(options.num_replicas, int), "auto has a scaling"
        share = options.whole_gangs(self.of(options.num_replicas))
        return replace(options, num_replicas=share)

    def _scaling(self, config: AutoscalingConfig, options: DeploymentOptions) -> AutoscalingConfig:
        def share(number: int) -> int:
            return options.whole_gangs(self.of(number))

        initial = config.initial_replicas
        least = config.min_replicas
        if initial is not None and self.direction is Direction.UP:
            # The load that is on its way has not been measured yet, and must not find too few.
            least = initial
        return replace(
            config,
            min_replicas=share(least),
            max_replicas=share(config.max_replicas),
            initial_replicas=None if initial is None else share(initial),
        )
