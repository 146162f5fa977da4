"""Reads what a driver requests: its deployments, and its ``pyserve run``. Pure."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from pyserve.config import DeploymentOptions, check_name
from pyserve.config.options import OPTIONS
from pyserve.config.placement import deployment_name
from pyserve.control.state.mesh import MeshState, Version
from pyserve.errors import UsageError
from pyserve.types import ApplicationName, DeploymentKey, DeploymentName
from pyserve.wire.v1 import control_pb2, mesh_pb2

_HASH_LENGTH = 8

# Options that replicas are told while they run, or that only routers and the controller look at.
_NOT_OF_REPLICAS = [name for name, each in OPTIONS.items() if each.keeps_replicas]
# What replicas read of ``request_router_config``.
_OF_REPLICAS = ("request_routing_stats_period_s", "request_routing_stats_timeout_s")

Versions = dict[DeploymentKey, tuple[Version, mesh_pb2.DeploymentSpec]]


def read_versions(
    application: ApplicationName, specs: Iterable[mesh_pb2.DeploymentSpec], deploy: int
) -> Versions:
    """Return a new version of each deployment.

    The id holds the number of the deploy, because code behind an unchanged import path may have
    changed: a deploy replaces what is there, unless ``changes_limits_only``.

    Args:
        application: the application that all of them belong to.
        specs: as the driver sent them.
        deploy: counts the deploys of this mesh.

    Raises:
        UsageError: there is none, a name stands twice, or an option is not allowed.
    """
    versions: Versions = {}
    for spec in specs:
        key = DeploymentKey(application, DeploymentName(check_name("deployment name", spec.name)))
        if key in versions:
            raise UsageError(f"two deployments of {application!r} are named {spec.name!r}")
        options = DeploymentOptions.from_json(spec.options_json)
        digest = hashlib.sha256(spec.SerializeToString(deterministic=True)).hexdigest()
        whole = mesh_pb2.DeploymentSpec()
        whole.CopyFrom(spec)
        whole.application = application
        version_id = f"{digest[:_HASH_LENGTH]}.{deploy}"
        version = Version(
            version_id,
            options,
            sys_path=tuple(spec.code.sys_path),
            calls=calls_of(spec),
            takes_http=spec.takes_http,
        )
        versions[key] = version, whole
    if not versions:
        raise UsageError(f"the application {application!r} has no deployment")
    return versions


def calls_of(spec: mesh_pb2.DeploymentSpec) -> frozenset[DeploymentKey]:
    """Return the deployments whose handles are among the arguments."""
    return frozenset(
        DeploymentKey(ApplicationName(each.application), DeploymentName(each.name))
        for each in spec.calls
    )


def serving_specs(
    state: MeshState, application: ApplicationName, specs: Mapping[str, mesh_pb2.DeploymentSpec]
) -> dict[DeploymentKey, mesh_pb2.DeploymentSpec]:
    """Return what an application's deployments with an undisturbed target run.

    Args:
        state: of the mesh.
        application: which one.
        specs: of all versions, by their ids.
    """
    return {
        item.key: specs[item.target.id]
        for item in state.of_application(application)
        if item.target is not None and item.is_settled() and item.fallback is None
    }


def unchanged_keys(
    state: MeshState,
    application: ApplicationName,
    specs: Mapping[str, mesh_pb2.DeploymentSpec],
    wanted: Mapping[DeploymentKey, mesh_pb2.DeploymentSpec],
) -> frozenset[DeploymentKey]:
    """Return the deployments whose current target is already what is wanted.

    Without those that were given up, and those whose source files have no fingerprint.
    """
    return frozenset(
        item.key
        for item in state.of_application(application)
        if item.target is not None
        and not item.target.failed
        and (spec := wanted.get(item.key)) is not None
        and spec.code.fingerprint
        and _is_same(specs[item.target.id], spec)
    )


def _is_same(one: mesh_pb2.DeploymentSpec, other: mesh_pb2.DeploymentSpec) -> bool:
    """Compare two; fields that a driver of an older release leaves out make no difference."""
    if one.takes_http == other.takes_http:
        return one == other
    return _without_limits(one)[0] == _without_limits(other)[0] and (
        one.options_json == other.options_json
    )


def helper_keys(versions: Versions) -> frozenset[DeploymentKey]:
    """Return the deployments that are helpers of others, see ``deployment_actors``."""
    return frozenset(
        DeploymentKey(key.application, DeploymentName(deployment_name(key.deployment, helper.name)))
        for key, (version, _) in versions.items()
        for helper in version.options.deployment_actors
    )


def changes_limits_only(
    before: Mapping[DeploymentKey, mesh_pb2.DeploymentSpec],
    after: Mapping[DeploymentKey, mesh_pb2.DeploymentSpec],
) -> bool:
    """Return whether running replicas of an application can take on what was deployed.

    That is so when limits of calls, the user_config, the number of replicas, or what only routers
    and the controller look at differ somewhere and nothing else does anywhere, and the driver's
    source files are what they were. Deploying the very same again is a wish for new replicas. So
    is a first user_config, and none where there was one: replicas could not go back, or forward,
    to none. And so is the first autoscaling_config: replicas without one do not tell what they
    have to do.
    """
    return (
        before != after
        and before.keys() == after.keys()
        and all(bool(spec.code.fingerprint) for spec in before.values())
        and all(_without_limits(before[key]) == _without_limits(after[key]) for key in after)
        and all(_has(before[key]) == _has(after[key]) for key in after)
    )


def _has(spec: mesh_pb2.DeploymentSpec) -> tuple[bool, bool]:
    options = json.loads(spec.options_json or "{}")
    is_scaled = options.get("autoscaling_config") is not None
    return (
        options.get("user_config") is not None,
        is_scaled or options.get("num_replicas") == "auto",
    )


def _without_limits(spec: mesh_pb2.DeploymentSpec) -> tuple[mesh_pb2.DeploymentSpec, object]:
    rest = mesh_pb2.DeploymentSpec()
    rest.CopyFrom(spec)
    rest.options_json = ""
    rest.takes_http = False  # Drivers of older releases do not say it.
    options = json.loads(spec.options_json or "{}")
    router = options.get("request_router_config") or {}
    for name in _NOT_OF_REPLICAS:
        options.pop(name, None)
    return rest, (options, [router.get(name) for name in _OF_REPLICAS])


@dataclass(frozen=True, slots=True)
class Run:
    """One ``pyserve run``.

    Attributes:
        id: random, since process ids of different machines may be equal.
        pid: for people.
    """

    id: str
    pid: int

    def __str__(self) -> str:
        return f"pyserve run (pid {self.pid})"


def run_of(message: control_pb2.Run) -> Run | None:
    """Read a message; ``None``: another kind of program."""
    return Run(message.id, message.pid) if message.id else None
