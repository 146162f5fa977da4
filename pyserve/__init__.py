"""Serve Python models as a mesh of gRPC services.

Importing this package starts no thread, opens no socket and loads nothing heavy: every name
is looked up in its module on first use.
"""

from __future__ import annotations

import importlib

# Not that of typing: its import takes a while, in which Ctrl-C would show a traceback.
TYPE_CHECKING = False

if TYPE_CHECKING:
    from pyserve import (
        aio,
        batching,
        cache,
        config,
        context,
        exceptions,
        grpc_util,
        handle,
        llm,
        metrics,
        request_router,
        schema,
        task_consumer,
        testing,
    )
    from pyserve.api.context import ReplicaContext, get_replica_context
    from pyserve.api.deployment import Application, Deployable, Deployment, deployment
    from pyserve.api.files import File
    from pyserve.api.graph import get_deployment_actor
    from pyserve.api.handles.handle import DeploymentHandle
    from pyserve.api.handles.objects import ObjectRef, get, put
    from pyserve.api.handles.response import DeploymentResponse
    from pyserve.api.handles.stream import DeploymentResponseGenerator
    from pyserve.api.ingress import ingress
    from pyserve.api.method import method
    from pyserve.batching.decorator import batch
    from pyserve.config import (
        AutoscalingConfig,
        ControllerOptions,
        HTTPOptions,
        LoggingConfig,
        ProxyLocation,
        RequestRouterConfig,
        TracingConfig,
        gRPCOptions,
    )
    from pyserve.driver.api import delete, run, shutdown, shutdown_async, start, status
    from pyserve.driver.handles import (
        RunTarget,
        get_app_handle,
        get_deployment_handle,
        run_many,
    )
    from pyserve.errors import (
        Abort,
        BackPressure,
        BatchError,
        DeploymentFailed,
        DeploymentUnavailable,
        ModelLoadFailed,
        PyserveError,
        QueueFull,
        ReferenceLost,
        RemoteError,
        RequestCancelled,
        RequestError,
        RequestTimeout,
        RequestTooLarge,
        SerializationError,
    )
    from pyserve.multiplexing.decorator import multiplexed
    from pyserve.request import get_multiplexed_model_id, get_request_context
    from pyserve.stepping.decorator import continuous, steps
    from pyserve.stepping.values import Done, Emit, Failed

    __version__: str

_MODULE_OF_NAME = {
    "Abort": "pyserve.errors",
    "Application": "pyserve.api.deployment",
    "AutoscalingConfig": "pyserve.config",
    "BackPressure": "pyserve.errors",
    "BatchError": "pyserve.errors",
    "ControllerOptions": "pyserve.config",
    "Deployable": "pyserve.api.deployment",
    "Deployment": "pyserve.api.deployment",
    "DeploymentFailed": "pyserve.errors",
    "DeploymentHandle": "pyserve.api.handles.handle",
    "DeploymentResponse": "pyserve.api.handles.response",
    "DeploymentResponseGenerator": "pyserve.api.handles.stream",
    "DeploymentUnavailable": "pyserve.errors",
    "Done": "pyserve.stepping.values",
    "Emit": "pyserve.stepping.values",
    "Failed": "pyserve.stepping.values",
    "File": "pyserve.api.files",
    "HTTPOptions": "pyserve.config",
    "LoggingConfig": "pyserve.config",
    "ModelLoadFailed": "pyserve.errors",
    "ObjectRef": "pyserve.api.handles.objects",
    "ProxyLocation": "pyserve.config",
    "PyserveError": "pyserve.errors",
    "QueueFull": "pyserve.errors",
    "ReferenceLost": "pyserve.errors",
    "RemoteError": "pyserve.errors",
    "ReplicaContext": "pyserve.api.context",
    "RequestCancelled": "pyserve.errors",
    "RequestError": "pyserve.errors",
    "RequestRouterConfig": "pyserve.config",
    "RequestTimeout": "pyserve.errors",
    "RequestTooLarge": "pyserve.errors",
    "RunTarget": "pyserve.driver.handles",
    "SerializationError": "pyserve.errors",
    "TracingConfig": "pyserve.config",
    "batch": "pyserve.batching.decorator",
    "continuous": "pyserve.stepping.decorator",
    "delete": "pyserve.driver.api",
    "deployment": "pyserve.api.deployment",
    "gRPCOptions": "pyserve.config",
    "get": "pyserve.api.handles.objects",
    "get_app_handle": "pyserve.driver.handles",
    "get_deployment_actor": "pyserve.api.graph",
    "get_deployment_handle": "pyserve.driver.handles",
    "get_multiplexed_model_id": "pyserve.request",
    "get_replica_context": "pyserve.api.context",
    "get_request_context": "pyserve.request",
    "ingress": "pyserve.api.ingress",
    "method": "pyserve.api.method",
    "multiplexed": "pyserve.multiplexing.decorator",
    "put": "pyserve.api.handles.objects",
    "run": "pyserve.driver.api",
    "run_many": "pyserve.driver.handles",
    "shutdown": "pyserve.driver.api",
    "shutdown_async": "pyserve.driver.api",
    "start": "pyserve.driver.api",
    "status": "pyserve.driver.api",
    "steps": "pyserve.stepping.decorator",
}
_MODULES = (
    "aio",
    "batching",
    "cache",
    "config",
    "context",
    "exceptions",
    "grpc_util",
    "handle",
    "llm",
    "metrics",
    "request_router",
    "schema",
    "task_consumer",
    "testing",
)

__all__ = [
    "Abort",
    "Application",
    "AutoscalingConfig",
    "BackPressure",
    "BatchError",
    "ControllerOptions",
    "Deployable",
    "Deployment",
    "DeploymentFailed",
    "DeploymentHandle",
    "DeploymentResponse",
    "DeploymentResponseGenerator",
    "DeploymentUnavailable",
    "Done",
    "Emit",
    "Failed",
    "File",
    "HTTPOptions",
    "LoggingConfig",
    "ModelLoadFailed",
    "ObjectRef",
    "ProxyLocation",
    "PyserveError",
    "QueueFull",
    "ReferenceLost",
    "RemoteError",
    "ReplicaContext",
    "RequestCancelled",
    "RequestError",
    "RequestRouterConfig",
    "RequestTimeout",
    "RequestTooLarge",
    "RunTarget",
    "SerializationError",
    "TracingConfig",
    "aio",
    "batch",
    "batching",
    "cache",
    "config",
    "context",
    "continuous",
    "delete",
    "deployment",
    "exceptions",
    "gRPCOptions",
    "get",
    "get_app_handle",
    "get_deployment_actor",
    "get_deployment_handle",
    "get_multiplexed_model_id",
    "get_replica_context",
    "get_request_context",
    "grpc_util",
    "handle",
    "ingress",
    "llm",
    "method",
    "metrics",
    "multiplexed",
    "put",
    "request_router",
    "run",
    "run_many",
    "schema",
    "shutdown",
    "shutdown_async",
    "start",
    "status",
    "steps",
    "task_consumer",
    "testing",
]


if not TYPE_CHECKING:  # A checker knows the names, and would take any other one too.

    def __getattr__(name: str) -> object:
        if name == "__version__":
            from pyserve.version import version

            return version()
        if name in _MODULES:
            return importlib.import_module(f"pyserve.{name}")
        if name not in _MODULE_OF_NAME:
            from pyserve.later import absence

            raise absence(__name__, name)
        try:
            value = getattr(importlib.import_module(_MODULE_OF_NAME[name]), name)
        except Exception as error:
            from pyserve.installed import explain

            if (unfit := explain(error)) is None:
                raise
            raise unfit from None
        globals()[name] = value  # The next access does not come here again.
        return value


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
