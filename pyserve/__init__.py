"""Serve Python models as a mesh of gRPC services.

Importing this package starts no thread, opens no socket and loads nothing heavy: every name
is looked up in its module on first use.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import ModuleType

    from pyserve import aio, batching, config, exceptions, handle
    from pyserve.api.context import ReplicaContext, get_replica_context
    from pyserve.api.deployment import Application, Deployment, deployment
    from pyserve.api.handles.handle import DeploymentHandle
    from pyserve.api.method import method
    from pyserve.batching.decorator import batch
    from pyserve.driver.api import delete, run, shutdown, start, status
    from pyserve.errors import Abort, DeploymentFailed, PyserveError
    from pyserve.multiplexing.decorator import multiplexed
    from pyserve.request import get_multiplexed_model_id

_MODULE_OF_NAME = {
    "Abort": "pyserve.errors",
    "Application": "pyserve.api.deployment",
    "Deployment": "pyserve.api.deployment",
    "DeploymentFailed": "pyserve.errors",
    "DeploymentHandle": "pyserve.api.handles.handle",
    "PyserveError": "pyserve.errors",
    "ReplicaContext": "pyserve.api.context",
    "batch": "pyserve.batching.decorator",
    "delete": "pyserve.driver.api",
    "deployment": "pyserve.api.deployment",
    "get_multiplexed_model_id": "pyserve.request",
    "get_replica_context": "pyserve.api.context",
    "method": "pyserve.api.method",
    "multiplexed": "pyserve.multiplexing.decorator",
    "run": "pyserve.driver.api",
    "shutdown": "pyserve.driver.api",
    "start": "pyserve.driver.api",
    "status": "pyserve.driver.api",
}
_MODULES = ("aio", "batching", "config", "exceptions", "handle")

__all__ = [
    "Abort",
    "Application",
    "Deployment",
    "DeploymentFailed",
    "DeploymentHandle",
    "PyserveError",
    "ReplicaContext",
    "aio",
    "batch",
    "batching",
    "config",
    "delete",
    "deployment",
    "exceptions",
    "get_multiplexed_model_id",
    "get_replica_context",
    "handle",
    "method",
    "multiplexed",
    "run",
    "shutdown",
    "start",
    "status",
]


def __getattr__(name: str) -> object:
    if name == "__version__":
        from pyserve.version import version

        return version()
    if name in _MODULES:
        return importlib.import_module(f"pyserve.{name}")
    try:
        module: ModuleType = importlib.import_module(_MODULE_OF_NAME[name])
    except KeyError:
        raise AttributeError(f"module 'pyserve' has no attribute {name!r}") from None
    value: object = getattr(module, name)
    globals()[name] = value  # The next access does not come here again.
    return value


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
