"""Metrics of autoscaling: wanted replicas, and the load behind each decision. Pure."""

from __future__ import annotations

from pyserve.control.autoscaling.scaler import Scaler
from pyserve.observe.metrics import Scrape
from pyserve.types import DeploymentKey
from pyserve.wire.v1 import control_pb2


def add_scaling(
    scrape: Scrape, key: DeploymentKey, wanted: control_pb2.Scaling, scaler: Scaler
) -> None:
    """Add numbers of replicas, and the calls that they are decided upon."""
    labels = {"application": key.application, "deployment": key.deployment}
    for name, value in (
        ("target_replicas", wanted.target),
        ("pending_replicas", wanted.pending),
        ("min_replicas", wanted.min_replicas),
        ("max_replicas", wanted.max_replicas),
        ("replica_start_seconds", wanted.ready_after_s),
        ("target_ongoing_calls", scaler.config.target_ongoing_requests),
        ("total_calls", scaler.signals.total),
        ("parked_calls", scaler.signals.parked),
    ):
        scrape.add(f"pyserve_autoscaling_{name}", value, **labels)
