"""Ray Serve's policies of autoscaling, under its names: to be named, called, or built upon.

A deployment needs none of them: without a policy its load decides, as here and with shorter delays.
"""

from __future__ import annotations

from typing import Any

from pyserve.config import AutoscalingConfig, AutoscalingContext

Decision = tuple[float, dict[str, Any]]


def replica_queue_length_autoscaling_policy(ctx: AutoscalingContext) -> Decision:
    """Return as many replicas as calls take, with ``target_ongoing_requests`` at each of them.

    The mesh rounds the number, and lets it through factors, bounds and delays.
    """
    return _replicas_for(ctx, ctx.total_num_requests)


def async_inference_autoscaling_policy(ctx: AutoscalingContext) -> Decision:
    """Return the same for calls and the tasks that wait at a broker, where somebody counts them.

    ``AsyncInferenceAutoscalingPolicy`` is the one that asks a broker.
    """
    return _replicas_for(ctx, ctx.total_num_requests + ctx.total_pending_async_requests)


def _replicas_for(ctx: AutoscalingContext, work: float) -> Decision:
    each = (ctx.config or AutoscalingConfig()).target_ongoing_requests
    return work / each, ctx.policy_state


default_autoscaling_policy = replica_queue_length_autoscaling_policy
default_async_inference_autoscaling_policy = async_inference_autoscaling_policy

__all__ = [
    "async_inference_autoscaling_policy",
    "default_async_inference_autoscaling_policy",
    "default_autoscaling_policy",
    "replica_queue_length_autoscaling_policy",
]
