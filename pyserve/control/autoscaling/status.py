"""Describes a deployment's autoscaling in the status reply. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from pyserve.control.state.mesh import Version
from pyserve.control.state.scaling import Decision
from pyserve.wire.v1 import control_pb2


def scaling_status(
    version: Version | None, decisions: Iterable[Decision] = ()
) -> control_pb2.Scaling | None:
    """Return its policy and last decision; ``None``: the deploy sets the number of replicas."""
    if version is None:
        return None
    config, note = version.options.scaling, version.scaling
    if config is None and note.target is None:
        return None
    is_advisory = config is not None and config.advisory
    advised = note.advised if is_advisory else None
    return control_pb2.Scaling(
        target=version.num_replicas if advised is None else advised,
        reason=note.reason or "as deployed",
        since=note.since,
        pending=note.pending if config is not None else version.num_replicas,
        min_replicas=note.least,
        max_replicas=note.most,
        is_advisory=is_advisory,
        ready_after_s=note.ready_after_s or 0.0,
        decisions=[
            control_pb2.ScalingDecision(
                at=each.at, before=each.before, after=each.after, reason=each.reason
            )
            for each in decisions
        ],
    )
