"""From a bound application to the deployments that the mesh is asked to run."""

from __future__ import annotations

import io
import warnings
from dataclasses import dataclass, field

import cloudpickle

from pyserve.api.code import Code, ShippedCode, ship
from pyserve.api.deployment import Application
from pyserve.api.handles.handle import DeploymentHandle
from pyserve.api.policy import check_policy
from pyserve.batching import Batched, BatchOptions, check_chain
from pyserve.config import DeploymentOptions
from pyserve.errors import UsageError
from pyserve.types import ApplicationName, DeploymentName


@dataclass(frozen=True, slots=True)
class PackedDeployment:
    """One deployment, ready to travel.

    Attributes:
        name: Unique in the application.
        code: The class.
        arguments: cloudpickle of ``(args, kwargs)``, other applications replaced by handles.
        interceptors: cloudpickle of the list of server interceptors, or empty.
        options: ``max_ongoing_requests`` is filled in.
    """

    name: DeploymentName
    code: ShippedCode
    arguments: bytes
    interceptors: bytes
    options: DeploymentOptions


@dataclass(frozen=True, slots=True)
class PackedApplication:
    """A whole graph; ``deployments`` hold every child before its parents."""

    name: ApplicationName
    ingress: DeploymentName
    deployments: tuple[PackedDeployment, ...]


def pack(application: Application, name: ApplicationName) -> PackedApplication:
    """Collect everything that an application refers to.

    Raises:
        UsageError: Two different applications of the graph have the same deployment name, or
            an argument cannot be pickled.
    """
    graph = _Graph(name)
    graph.visit(application)
    return PackedApplication(
        name=name,
        ingress=DeploymentName(application.name),
        deployments=tuple(graph.packed.values()),
    )


@dataclass(slots=True)
class _Graph:
    name: ApplicationName
    owners: dict[str, Application] = field(default_factory=dict)
    packed: dict[str, PackedDeployment] = field(default_factory=dict)
    parents: list[Application] = field(default_factory=list)  # from the root to what is packed

    def visit(self, application: Application) -> DeploymentHandle:
        owner = self.owners.setdefault(application.name, application)
        if owner is not application:
            raise UsageError(
                f"application {self.name!r} binds two deployments named {application.name!r}; "
                f"give one another name with .options(name=...), or bind it once and pass that "
                f"object twice"
            )
        handle: DeploymentHandle = DeploymentHandle(application.name, self.name)
        if application.name not in self.packed:
            # Children are packed while the arguments are pickled, so they come first.
            self.parents.append(application)
            self.packed[application.name] = self._pack(application)
            self.parents.pop()
        if self.parents:
            _warn_of_rests(self.parents[-1], application)
        return handle

    def _pack(self, application: Application) -> PackedDeployment:
        deployment = application.deployment
        options = deployment.settings
        if path := options.request_router_config.policy_path:
            # What cannot be made here is refused before anything starts.
            check_policy(path, options.request_router_config.policy_kwargs)
        limit = options.ongoing_requests_limit(batch_capacity(deployment.target))
        if limit < (size := _deployment_batch_size(application)):
            warnings.warn(
                f"deployment {application.name!r} accepts max_ongoing_requests={limit} at once, "
                f"so its batches never reach max_batch_size={size}; raise the one or lower the "
                f"other",
                stacklevel=2,
            )
        return PackedDeployment(
            name=DeploymentName(application.name),
            code=ship(deployment.target),
            arguments=self._dumps(application, (application.args, dict(application.kwargs))),
            interceptors=self._dumps(application, list(options.interceptors))
            if options.interceptors
            else b"",
            options=options.updated(
                {"name": application.name, "max_ongoing_requests": limit, "interceptors": ()}
            ),
        )

    def _dumps(self, application: Application, value: object) -> bytes:
        buffer = io.BytesIO()
        try:
            _GraphPickler(buffer, self).dump(value)
        except UsageError:
            raise
        except Exception as error:
            raise UsageError(
                f"the arguments of {application.name}.bind(...) cannot travel to the replicas: "
                f"{type(error).__name__}: {error}. Pass what describes the object (a path, a "
                f"configuration) and make it in the constructor"
            ) from error
        return buffer.getvalue()


class _GraphPickler(cloudpickle.Pickler):  # type: ignore[misc]  # cloudpickle has no types
    """Replaces applications by handles wherever they are nested, and visits them."""

    def __init__(self, buffer: io.BytesIO, graph: _Graph) -> None:
        super().__init__(buffer)
        self._graph = graph

    def reducer_override(self, value: object) -> object:
        if isinstance(value, Application):
            return self._graph.visit(value).__reduce__()
        return super().reducer_override(value)


def _warn_of_rests(upstream: Application, downstream: Application) -> None:
    """Warn where the batches of one deployment do not fill those of one that it calls."""
    sizes = [_deployment_batch_size(each) for each in (upstream, downstream)]
    if (mistake := check_chain(*sizes)) is not None:
        warnings.warn(
            f"deployment {upstream.name!r} calls {downstream.name!r}, and {mistake}", stacklevel=2
        )


def _deployment_batch_size(application: Application) -> int:
    configured = application.deployment.settings.batching_config
    own = 0 if configured is None else configured.max_batch_size
    return max(own, max_batch_size(application.deployment.target))


def max_batch_size(target: Code) -> int:
    """Return the largest ``max_batch_size`` of what is deployed, 0 without a batched method."""
    return max((each.max_batch_size for each in _batch_options(target)), default=0)


def batch_capacity(target: Code) -> int:
    """Return the most items that batches of one method can hold at once."""
    options = _batch_options(target)
    return max((each.max_batch_size * each.max_concurrent_batches for each in options), default=0)


def _batch_options(target: Code) -> list[BatchOptions]:
    if not isinstance(target, type):
        return [target.options] if isinstance(target, Batched) else []
    return [
        attribute.options
        for owner in target.__mro__
        for attribute in vars(owner).values()
        if isinstance(attribute, Batched)
    ]
