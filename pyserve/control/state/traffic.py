"""Traffic shares: deployments that get a share of another one's calls. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from pyserve.config.validation import refuse
from pyserve.control.state.applications import ApplicationInfo
from pyserve.control.state.mesh import MeshState
from pyserve.control.state.specs import Versions
from pyserve.types import ApplicationName, DeploymentKey, DeploymentName
from pyserve.wire.v1 import mesh_pb2

Infos = Mapping[ApplicationName, ApplicationInfo]


def check_traffic(
    versions: Versions,
    infos: Infos,
    state: MeshState,
    *,
    leaving: Collection[ApplicationName] = (),
) -> None:
    """Refuse shares of deployments that are not there.

    Args:
        versions: all deployments of the applications that are being deployed.
        infos: the applications, with those.
        state: what there is besides.
        leaving: applications that are about to end.

    Raises:
        OptionError: a name leads to no deployment, or to the one that shares.
    """
    replaced = {*leaving, *(key.application for key in versions)}
    others = [key for key in state.deployments if key.application not in replaced]
    known = frozenset([*versions, *others])
    for key, (version, _) in versions.items():
        options = version.options
        for field, shares in (("traffic", options.traffic), ("mirror", options.mirror)):
            for name in shares:
                if _target(name, key, infos, known) in (None, key):
                    there = ", ".join(sorted(map(str, known - {key})))
                    allowed = there or "nothing, since there is no other deployment"
                    raise refuse(f"{field} of {key}", name, allowed)


def shares_of(
    key: DeploymentKey,
    shares: Mapping[str, float],
    infos: Infos,
    known: frozenset[DeploymentKey],
) -> Iterator[mesh_pb2.Share]:
    """Yield the shares whose deployments are there; the part of any other stays with ``key``."""
    for name, weight in shares.items():
        target = _target(name, key, infos, known)
        if target is not None and target != key and weight > 0:
            yield mesh_pb2.Share(
                key=mesh_pb2.DeploymentKey(application=target.application, name=target.deployment),
                weight=weight,
            )


def _target(
    name: str, key: DeploymentKey, infos: Infos, known: frozenset[DeploymentKey]
) -> DeploymentKey | None:
    """Return what ``application/Deployment`` or ``application`` means for ``key``.

    An application stands for its deployment of the same name, or for the one that it exposes.
    """
    application, slash, deployment = name.partition("/")
    candidates: list[str] = [deployment] if slash else [key.deployment]
    info = infos.get(ApplicationName(application))
    if not slash and info is not None:
        candidates.append(info.ingress_deployment)
    for candidate in candidates:
        found = DeploymentKey(ApplicationName(application), DeploymentName(candidate))
        if found in known:
            return found
    return None
