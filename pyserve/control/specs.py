"""Reads what a driver wants deployed. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

from pyserve.config import DeploymentOptions, check_name
from pyserve.control.state import Version
from pyserve.errors import UsageError
from pyserve.types import ApplicationName, DeploymentKey, DeploymentName
from pyserve.wire.v1 import mesh_pb2

_HASH_LENGTH = 8

Versions = dict[DeploymentKey, tuple[Version, mesh_pb2.DeploymentSpec]]


def read_versions(
    application: ApplicationName, specs: Iterable[mesh_pb2.DeploymentSpec], deploy: int
) -> Versions:
    """Return a new version of each deployment.

    The id holds the number of the deploy, because code behind an unchanged import path may have
    changed: a deploy always replaces what is there.

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
        versions[key] = Version(f"{digest[:_HASH_LENGTH]}.{deploy}", options), whole
    if not versions:
        raise UsageError(f"the application {application!r} has no deployment")
    return versions
