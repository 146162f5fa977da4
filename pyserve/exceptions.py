"""The exceptions under the module name that Ray Serve uses."""

from pyserve.errors import (
    Abort,
    BatchError,
    DeploymentFailed,
    ImportPathError,
    MeshError,
    MeshNotFound,
    MeshUnavailable,
    NotInReplica,
    NotYetSupported,
    OptionError,
    PyserveError,
    RuntimeForked,
    ServicerError,
    UsageError,
    VersionSkew,
)

__all__ = [
    "Abort",
    "BatchError",
    "DeploymentFailed",
    "ImportPathError",
    "MeshError",
    "MeshNotFound",
    "MeshUnavailable",
    "NotInReplica",
    "NotYetSupported",
    "OptionError",
    "PyserveError",
    "RuntimeForked",
    "ServicerError",
    "UsageError",
    "VersionSkew",
]
