"""The models of engines for language models, as deployments keep them. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from pyserve.control.state.mesh import Desired
from pyserve.wire.v1 import mesh_pb2


def dated(
    models: Iterable[mesh_pb2.EngineModel], desired: Desired, unix_now: float
) -> Iterator[mesh_pb2.EngineModel]:
    """Yield models with the times when they were created, or when the controller first saw them."""
    known = {model.id: model.created for model in engine_models(desired)}
    for model in models:
        found = mesh_pb2.EngineModel()
        found.CopyFrom(model)
        # The same for all replicas and after a restart, so that views do not change.
        found.created = model.created or known.get(model.id) or int(unix_now)
        yield found


def shared_names(one: Desired, other: Desired) -> list[str]:
    """Return the names of models that two engines have, unless they share their calls anyway."""
    if one.key == other.key or _shares_calls(one, other) or _shares_calls(other, one):
        return []
    names, others = (
        {name for model in engine_models(each) for name in (model.id, *model.aliases)}
        for each in (one, other)
    )
    return sorted(names & others)


def _shares_calls(one: Desired, other: Desired) -> bool:
    options = None if one.target is None else one.target.options
    application, deployment = other.key.application, other.key.deployment
    names = {application, f"{application}/{deployment}"}
    return options is not None and not names.isdisjoint({*options.traffic, *options.mirror})


def engine_models(desired: Desired) -> list[mesh_pb2.EngineModel]:
    """Return the models of a deployment that is an engine for language models."""
    return [mesh_pb2.EngineModel.FromString(each) for each in desired.engine_models]
