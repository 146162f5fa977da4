"""Ray Serve's rule with the terms of its ``autoscaling_config``, and targets like it. Pure."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass

from pyserve.config import AutoscalingConfig
from pyserve.control.autoscaling.signals import Signals
from pyserve.control.autoscaling.value_times import replicas_for_time


@dataclass(frozen=True, slots=True)
class Proposal:
    """A wanted number of replicas, before factors, bounds and delays.

    Attributes:
        number: At least 0; not rounded.
        reason: A clause that says why.
    """

    number: float
    reason: str


@dataclass(frozen=True, slots=True)
class Settled:
    """The result of a proposal.

    Attributes:
        wanted: After factors and bounds.
        number: The number for now: ``wanted``, or the former number until its delay has passed.
    """

    wanted: int
    number: int


def by_targets(
    config: AutoscalingConfig, signals: Signals, running: int, target: int, now: float
) -> Proposal:
    """Return the largest number that a target wants; with targets for times, not all have one."""
    if not config.has_time_targets:
        return calls_at_once(config, signals, running, target, now)
    wishes = [
        _for_time(config, signals, running, target, now, is_first=is_first)
        for is_first in (True, False)
    ]
    if config.target_ongoing_cost is not None:
        wishes.append(calls_at_once(config, signals, running, target, now))
    known = [each for each in wishes if each is not None]
    if not known:
        return Proposal(target, "no replica has said yet how long values take")
    return max(known, key=lambda each: each.number)


def _for_time(
    config: AutoscalingConfig,
    signals: Signals,
    running: int,
    target: int,
    now: float,
    *,
    is_first: bool,
) -> Proposal | None:
    """Return what the target for one of the times wants; ``None``: no target, or nothing known."""
    values = signals.values
    name = "to the first value" if is_first else "from value to value"
    wanted_s = config.target_time_to_first_value_s if is_first else config.target_time_per_value_s
    measure = values.first_value_s if is_first else values.next_value_s
    if wanted_s is None:
        return None
    recent_s, period_s = measure(now, recently=True), measure(now, recently=False)
    calls = max(signals.most_over_period(now), 0 if period_s is None else 1)
    if not calls:
        return Proposal(0, f"no calls in {config.look_back_period_s:g} s")
    if not running and not target:
        return Proposal(1, "calls wait, and no replica serves")
    if not values.is_told:
        return None

    fullness = values.fullness(now)
    wish = functools.partial(
        replicas_for_time, target_s=wanted_s, running=running, fullness=fullness, calls=calls
    )
    if recent_s is not None and recent_s > wanted_s:
        # Those that still start are not too many because the running ones are too few.
        number = max(wish(recent_s, is_draining=values.is_draining(now)), float(min(target, calls)))
        return Proposal(number, f"{recent_s:.3g} s {name}, {wanted_s:g} s is the target")
    measured_s = max(recent_s or 0.0, period_s or 0.0)
    # A time that was too long only before the last moments does not add replicas.
    number = min(wish(min(measured_s, wanted_s)), target)
    return Proposal(
        number,
        f"{measured_s:.3g} s {name} in {config.look_back_period_s:g} s, {wanted_s:g} s is the "
        f"target, and requests fill {fullness:.1f} replicas",
    )


def calls_at_once(
    config: AutoscalingConfig, signals: Signals, running: int, target: int, now: float
) -> Proposal:
    """Return the number of replicas at which each has its target, of calls or of what they cost.

    Growing looks at the last moments and shrinking at the whole look-back period. If no replica
    runs, so that nothing was measured, the current calls count.
    """
    each, what = config.target_ongoing_requests, "calls at once"
    recent = signals.total_recently(now) if running else float(signals.total)
    period = signals.total_over_period(now)
    if config.target_ongoing_cost is not None:
        each, what = config.target_ongoing_cost, "is what the calls at once cost"
        recent = signals.cost_recently(now) if running else signals.total_cost
        period = signals.cost_over_period(now)
        if not target and signals.total:  # From nothing: what a call costs may not be known yet.
            recent = max(recent, each)
    if recent / each > target:
        return Proposal(recent / each, f"{recent:.1f} {what}, {each:g} for each replica")
    calls = max(recent, period)
    # Long enough to be too few for the replicas, it is; and what grew meanwhile is not forgotten.
    return Proposal(
        min(calls / each, target),
        f"{calls:.1f} {what} in {config.look_back_period_s:g} s, {each:g} for each replica",
    )


class Delays:
    """Changes a number only when that has been wanted for long enough.

    Args:
        config: With the delays.
        downscale_delay_s: The default if the configuration has none.
    """

    def __init__(self, config: AutoscalingConfig, downscale_delay_s: float = 0.0) -> None:
        self._config = config
        self._otherwise_s = downscale_delay_s
        self._direction = 0
        self._since = 0.0

    def settle(self, number: float, *, running: int, target: int, now: float) -> Settled:
        """Apply factors, bounds and delays to a wanted number.

        Args:
            number: As a policy returned it.
            running: How many replicas serve; differences are relative to this.
            target: The current target.
            now: Seconds.
        """
        wanted = self._bounded(self._damped(number, running))
        if not running and target and wanted < target:
            # The first ones start: nothing that has been measured speaks against them.
            wanted = target
        if wanted < target:
            # The last one goes by itself, after a delay of its own.
            wanted = max(wanted, 0 if target == 1 else 1)
        direction = (wanted > target) - (wanted < target)
        if direction != self._direction:
            self._direction, self._since = direction, now
        if not direction or now - self._since < self._delay_s(direction, target):
            return Settled(wanted, target)
        self._direction = 0
        return Settled(wanted, wanted)

    def _damped(self, number: float, running: int) -> int:
        difference = number - running
        factor = (
            self._config.upscaling_factor if difference > 0 else self._config.downscaling_factor
        )
        # Ignores the rounding error of floats.
        damped = math.ceil(running + (factor or 1.0) * difference - 1e-9)
        if damped == running and math.ceil(number) < running:
            return damped - 1  # A small factor must not keep it there for ever.
        return damped

    def _bounded(self, number: int) -> int:
        return max(self._config.min_replicas, min(self._config.max_replicas, number))

    def _delay_s(self, direction: int, target: int) -> float:
        if direction > 0:
            # From nothing, calls wait for the first one.
            return self._config.upscale_delay_s if target else 0.0
        down_s = self._config.downscale_delay_s
        if target == 1 and self._config.downscale_to_zero_delay_s is not None:
            down_s = self._config.downscale_to_zero_delay_s
        return self._otherwise_s if down_s is None else down_s
