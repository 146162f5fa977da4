"""Deployments whose number of replicas follows the load, and policies that say how."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pyserve
from pyserve.config import AutoscalingContext, DeploymentID

FAST = {"look_back_period_s": 1.0, "downscale_delay_s": 1.0}


@pyserve.deployment(max_ongoing_requests=4)
class Sleeper:
    """Takes as long for a call as it is told."""

    async def __call__(self, seconds: float) -> str:
        await asyncio.sleep(seconds)
        return "slept"

    async def replica(self) -> str:
        return pyserve.get_replica_context().replica_id


@pyserve.deployment
class Metered:
    """Says how many replicas it wants by a metric of its own."""

    def __init__(self) -> None:
        self.wanted = 1

    def record_autoscaling_stats(self) -> dict[str, float]:
        return {"wanted": self.wanted}

    async def __call__(self, wanted: int) -> None:
        self.wanted = wanted


def by_metric(ctx: AutoscalingContext) -> tuple[int, dict[str, Any]]:
    """Read what the replicas say they want."""
    wanted = ctx.aggregated_metrics.get("wanted", {})
    return round(max(wanted.values(), default=1)), {}


class Counting:
    """Keeps state in itself and in what it returns; grows by one with each question."""

    def __init__(self, most: int) -> None:
        self.most = most

    def __call__(self, ctx: AutoscalingContext) -> tuple[int, dict[str, Any]]:
        asked = ctx.policy_state.get("asked", 0) + 1
        return min(asked, self.most), {"asked": asked}


def raising(ctx: AutoscalingContext) -> tuple[int, dict[str, Any]]:
    """Never decide."""
    raise LookupError(f"nothing known of {ctx.deployment_name}")


def twice_as_many(
    contexts: dict[DeploymentID, AutoscalingContext],
) -> tuple[dict[DeploymentID, int], dict[DeploymentID, dict[str, Any]]]:
    """Give the first deployment two replicas, and the others twice as many."""
    return {each: 2 if each.name == "First" else 4 for each in contexts}, {}


@pyserve.deployment
@pyserve.continuous(max_running=1)
class Stepper:
    """Has a value after each of as many steps as it is told."""

    def admit(self, steps: int) -> list[int]:
        return [steps]

    def step(self, states: list[list[int]]) -> list[pyserve.Emit]:
        time.sleep(0.02)
        for state in states:
            state[0] -= 1
        return [pyserve.Emit(1) if state[0] else pyserve.Done(0) for state in states]
