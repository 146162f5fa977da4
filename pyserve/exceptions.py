"""The exceptions under the module name that Ray Serve uses, and under its names."""

from pyserve.errors import (
    Abort,
    BackPressure,
    BatchError,
    DeploymentFailed,
    DeploymentUnavailable,
    ImportPathError,
    KindError,
    MeshError,
    MeshHeld,
    MeshNotFound,
    MeshUnavailable,
    ModelLoadFailed,
    NotInReplica,
    NotYetSupported,
    OptionError,
    PyserveError,
    ReferenceLost,
    RemoteError,
    RequestCancelled,
    RequestError,
    RequestTimeout,
    RuntimeForked,
    SerializationError,
    ServicerError,
    UsageError,
    VersionSkew,
    WrongMoment,
)

# As Ray Serve calls them.
RayServeException = PyserveError
BackPressureError = BackPressure
DeploymentUnavailableError = DeploymentUnavailable
ReplicaUnavailableError = DeploymentUnavailable
RequestCancelledError = RequestCancelled

__all__ = [
    "Abort",
    "BackPressure",
    "BackPressureError",
    "BatchError",
    "DeploymentFailed",
    "DeploymentUnavailable",
    "DeploymentUnavailableError",
    "ImportPathError",
    "KindError",
    "MeshError",
    "MeshHeld",
    "MeshNotFound",
    "MeshUnavailable",
    "ModelLoadFailed",
    "NotInReplica",
    "NotYetSupported",
    "OptionError",
    "PyserveError",
    "RayServeException",
    "ReferenceLost",
    "RemoteError",
    "ReplicaUnavailableError",
    "RequestCancelled",
    "RequestCancelledError",
    "RequestError",
    "RequestTimeout",
    "RuntimeForked",
    "SerializationError",
    "ServicerError",
    "UsageError",
    "VersionSkew",
    "WrongMoment",
]
