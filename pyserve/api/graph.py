"""From a bound application to the deployments that the mesh is asked to run, helpers included."""

from __future__ import annotations

import inspect
import io
import logging
import pkgutil
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from pyserve.api.code import Code, ShippedCode, ship
from pyserve.api.context import expect_calls, get_replica_context
from pyserve.api.deployment import Application, Deployment
from pyserve.api.handles.handle import DeploymentHandle
from pyserve.api.ingress import ingress_of
from pyserve.api.pickling import Pickler
from pyserve.api.policy import check_policy
from pyserve.api.step_targets import check_step_targets
from pyserve.api.travel import check_code
from pyserve.batching import Batched, BatchOptions, check_chain
from pyserve.config import DeploymentOptions, LoggingConfig
from pyserve.config.placement import DeploymentActorConfig, check_placement_group, deployment_name
from pyserve.config.unneeded import PAGE, lines_on_options
from pyserve.errors import OptionError, UsageError
from pyserve.stepping.decorator import is_continuous, options_of
from pyserve.stepping.options import ContinuousOptions
from pyserve.types import ApplicationName, DeploymentKey, DeploymentName

_LOGGER = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class PackedDeployment:
    """One deployment, ready to travel.

    Attributes:
        name: Unique in the application.
        code: The class.
        arguments: cloudpickle of ``(args, kwargs)``, other applications replaced by handles.
        interceptors: cloudpickle of the list of server interceptors, or empty.
        options: ``max_ongoing_requests`` is filled in.
        calls: The deployments whose handles are among the arguments.
    """

    name: DeploymentName
    code: ShippedCode
    arguments: bytes
    interceptors: bytes
    options: DeploymentOptions
    calls: tuple[DeploymentKey, ...] = ()
    takes_http: bool = False


@dataclass(frozen=True, slots=True)
class PackedApplication:
    """A whole graph; ``deployments`` hold every child before its parents.

    Attributes:
        external_scaler_enabled: The numbers of replicas are set from outside of the mesh.
        autoscaling_policy_json: An ``AutoscalingPolicy`` that decides for all of them; "": none.
    """

    name: ApplicationName
    ingress: DeploymentName
    deployments: tuple[PackedDeployment, ...]
    external_scaler_enabled: bool = False
    autoscaling_policy_json: str = ""


Adjust = Callable[[DeploymentName, DeploymentOptions], DeploymentOptions]
"""Returns the options of a deployment that replace those in the code."""


def pack(
    application: Application,
    name: ApplicationName,
    logs: LoggingConfig | None = None,
    adjust: Adjust = lambda _name, options: options,
) -> PackedApplication:
    """Collect everything that an application refers to.

    If deployments have the same name, all but the first one get a number: ``Model``, ``Model_1``.
    Deployments are numbered after those that are bound to them as arguments.

    Args:
        application: The root of the graph.
        name: In the mesh.
        logs: How deployments log that have no other word about it.
        adjust: Called for each deployment with its name in the application.

    Raises:
        UsageError: An argument cannot be pickled, a class has no ``reconfigure`` for its
            ``user_config``, or two deployments have a web application.
    """
    graph = _Graph(name, logs, adjust)
    ingress = graph.visit(application)
    _check_web_applications(graph)
    return PackedApplication(
        name=name,
        ingress=DeploymentName(ingress.deployment_name),
        deployments=tuple(graph.packed.values()),
    )


@dataclass(slots=True)
class _Graph:
    name: ApplicationName
    logs: LoggingConfig | None
    adjust: Adjust
    names: dict[Application, DeploymentName] = field(default_factory=dict)
    packed: dict[DeploymentName, PackedDeployment] = field(default_factory=dict)
    parents: list[Application] = field(default_factory=list)  # from the root to what is packed
    calls: dict[Application, set[DeploymentKey]] = field(default_factory=dict)

    def visit(self, application: Application) -> DeploymentHandle:
        if application not in self.names:
            # Children are packed while the arguments are pickled, so they come first.
            self.parents.append(application)
            packed = self._pack(application)
            self.parents.pop()
            self.names[application] = packed.name
            self.packed[packed.name] = packed
        if self.parents:
            _warn_of_rests(self.parents[-1], application)
        return DeploymentHandle(self.names[application], self.name)

    def note_call(self, handle: DeploymentHandle) -> None:
        """Remember whose handle is among the arguments of what is packed."""
        key = DeploymentKey(
            ApplicationName(handle.app_name), DeploymentName(handle.deployment_name)
        )
        self.calls.setdefault(self.parents[-1], set()).add(key)

    def _free_name(self, wanted: str) -> DeploymentName:
        """Return the name, with a number where another deployment has it already."""
        name, number = wanted, 0
        while name in self.packed:
            number += 1
            name = f"{wanted}_{number}"
        if number:
            _LOGGER.warning(
                "application %r binds several deployments named %r, and one of them becomes %r; "
                "name them with .options(name=...), or bind one once and pass that object twice",
                self.name,
                wanted,
                name,
            )
        return DeploymentName(name)

    def _pack(self, application: Application) -> PackedDeployment:
        arguments = self._dumps(application, (application.args, dict(application.kwargs)))
        name = self._free_name(application.name)
        deployment = application.deployment
        options = self.adjust(name, deployment.settings)
        if options != deployment.settings:
            deployment = Deployment(deployment.target, options)
            application = replace(application, deployment=deployment)
        # Of options that a file has beside those in the code.
        check_placement_group(options)
        check_step_targets(deployment.target, options)
        if path := options.request_router_config.policy_path:
            # What cannot be made here is refused before anything starts.
            check_policy(path, options.request_router_config.policy_kwargs)
        _check_config(application)
        self._visit_actors(name, options)
        for line in lines_on_options(options):
            _LOGGER.warning("deployment %r of %r: %s; see %s", name, self.name, line, PAGE)
        limit = options.ongoing_requests_limit(
            batch_capacity(deployment.target), calls_held(deployment.target)
        )
        if limit < (size := _deployment_batch_size(application)):
            warnings.warn(
                f"deployment {application.name!r} accepts max_ongoing_requests={limit} at once, "
                f"so its batches never reach max_batch_size={size}; raise the one or lower the "
                f"other",
                stacklevel=2,
            )
        _warn_of_steps(application, limit)
        return PackedDeployment(
            name=name,
            code=_ship(name, deployment.target),
            arguments=arguments,
            interceptors=self._dumps(application, list(options.interceptors))
            if options.interceptors
            else b"",
            options=options.updated(
                {
                    "name": name,
                    "max_ongoing_requests": limit,
                    "interceptors": (),
                    "logging_config": self._logs_of(options),
                }
            ),
            calls=tuple(sorted(self.calls.get(self.parents[-1], ()), key=str)),
            takes_http=_takes_http(deployment.target),
        )

    def _visit_actors(self, name: DeploymentName, options: DeploymentOptions) -> None:
        """Pack the helpers of a deployment, which start before it as what it is bound to does."""
        for config in options.deployment_actors:
            helper = application_of(name, options, config)
            if (taken := helper.name) in self.packed:
                raise UsageError(
                    f"application {self.name!r} has a deployment {taken!r}, and deployment actor "
                    f"{config.name!r} of {name!r} needs that name; give one of them another name"
                )
            self.note_call(self.visit(helper))

    def _logs_of(self, options: DeploymentOptions) -> LoggingConfig:
        is_unset = options.logging_config == LoggingConfig()
        return self.logs if self.logs is not None and is_unset else options.logging_config

    def _dumps(self, application: Application, value: object) -> bytes:
        buffer = io.BytesIO()
        try:
            pickler = _GraphPickler(buffer, self)
            pickler.dump(value)
        except UsageError:
            raise
        except Exception as error:
            raise UsageError(
                f"the arguments of {application.name}.bind(...) cannot travel to the replicas: "
                f"{type(error).__name__}: {error}. Pass what describes the object (a path, a "
                f"configuration) and make it in the constructor"
            ) from error
        return pickler.with_sources(buffer.getvalue())


def _ship(name: DeploymentName, target: Code) -> ShippedCode:
    try:
        return ship(target)
    except UsageError:
        raise
    except Exception as error:
        check_code(name, target)
        # Its check looks at the beginning only.
        raise UsageError(
            f"the code of deployment {name!r} cannot travel to the replicas: "
            f"{type(error).__name__}: {error}. Put it into a module, which replicas import"
        ) from error


def _takes_http(target: Code) -> bool:
    """Say whether requests of plain HTTP can wait for its first replica, which will answer them."""
    if not isinstance(target, type) or ingress_of(target) is not None:
        return True
    return any("__call__" in vars(each) for each in target.__mro__)


def _check_web_applications(graph: _Graph) -> None:
    found = [
        name for each, name in graph.names.items() if ingress_of(each.deployment.target) is not None
    ]
    if len(found) > 1:
        raise UsageError(
            f"application {graph.name!r} has @pyserve.ingress on {' and '.join(sorted(found))}, "
            f"but its HTTP goes to one deployment; run the other one as an application of its own, "
            f"with a name and a route_prefix, or leave its @pyserve.ingress out and call it "
            f"through its handle"
        )


class _GraphPickler(Pickler):
    """Replaces applications by handles wherever they are nested, and visits them."""

    def __init__(self, buffer: io.BytesIO, graph: _Graph) -> None:
        super().__init__(buffer)
        self._graph = graph

    def reducer_override(self, value: object) -> object:
        if isinstance(value, Application):
            handle = self._graph.visit(value)
            self._graph.note_call(handle)
            return handle.__reduce__()
        if isinstance(value, DeploymentHandle):
            self._graph.note_call(value)
        return super().reducer_override(value)


def _check_config(application: Application) -> None:
    """Refuse a configuration that nobody takes."""
    target = application.deployment.target
    if application.deployment.settings.user_config is None:
        return
    if not callable(getattr(target, "reconfigure", None)):
        raise UsageError(
            f"deployment {application.name!r} has a user_config, and {target.__qualname__} takes "
            f"none; write `def reconfigure(self, config)` in the class, or leave user_config out"
        )


def _warn_of_steps(application: Application, limit: int) -> None:
    """Warn where fewer calls are accepted than share a step."""
    options = _step_options(application.deployment.target)
    if options is not None and limit < options.max_running:
        warnings.warn(
            f"deployment {application.name!r} accepts max_ongoing_requests={limit} at once, so "
            f"its steps never have max_running={options.max_running} requests; raise the one or "
            f"lower the other",
            stacklevel=2,
        )


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


def calls_held(target: Code) -> int:
    """Return how many calls a replica of a continuously batched class holds, 0 for others."""
    options = _step_options(target)
    return 0 if options is None else options.max_running + options.max_waiting


def _step_options(target: Code) -> ContinuousOptions | None:
    """Return the limits of a continuously batched class, ``None`` for others."""
    if not isinstance(target, type) or not is_continuous(target):
        return None
    return options_of(target)


def _batch_options(target: Code) -> list[BatchOptions]:
    if not isinstance(target, type):
        return [target.options] if isinstance(target, Batched) else []
    return [
        attribute.options
        for owner in target.__mro__
        for attribute in vars(owner).values()
        if isinstance(attribute, Batched)
    ]


# Ray's defaults: a class without coroutines expects one call at a time.
_CONCURRENCY_OF_THREADS, _CONCURRENCY_OF_COROUTINES = 1, 1000
# The options that a helper takes over from the deployment it belongs to.
_INHERITED = ("env_vars", "working_dir", "pip", "startup_timeout_s", "logging_config")


def get_deployment_actor(actor_name: str) -> DeploymentHandle[Any]:
    """Return a handle to a helper that all replicas of this deployment share.

    ``handle.method.remote(...)`` calls it, and may be awaited like any call. A helper that has
    failed is replaced. The same handle reaches the new one, and calls wait until it is ready.

    Args:
        actor_name: As in ``deployment_actors`` of this code's deployment.

    Raises:
        NotInReplica: This process is no replica.
        ValueError: The deployment has no helper of that name.
    """
    context = get_replica_context()
    if actor_name not in context.deployment_actors:
        known = ", ".join(context.deployment_actors) or "none"
        raise ValueError(
            f"deployment {context.deployment!r} has no deployment actor {actor_name!r}; it has: "
            f"{known}"
        )
    expect_calls()
    name = deployment_name(context.deployment, actor_name)
    return DeploymentHandle(name, context.app_name)


def application_of(
    owner: str, options: DeploymentOptions, config: DeploymentActorConfig
) -> Application[Any]:
    """Return the deployment of one replica that a helper is.

    Args:
        owner: Name of the deployment that it belongs to.
        options: Of that deployment.
        config: Of the helper.

    Raises:
        OptionError: There is no such class, or its options are wrong.
        TypeError: Its constructor does not take these arguments.
    """
    actor_class = _class_of(config)
    actor_options = dict(config.actor_options)
    concurrency = actor_options.pop("max_concurrency", None) or _concurrency_of(actor_class)
    environment = actor_options.pop("runtime_env", None)
    settings = DeploymentOptions.of(
        {
            "name": deployment_name(owner, config.name),
            "max_ongoing_requests": concurrency,
            "ray_actor_options": actor_options,
            **{name: getattr(options, name) for name in _INHERITED},
        }
    )
    if environment:
        settings = settings.updated({"runtime_env": environment})
    helper: Deployment[Any, ...] = Deployment(actor_class, settings)
    return helper.bind(*config.init_args, **config.init_kwargs)


def _class_of(config: DeploymentActorConfig) -> type[Any]:
    found = config.actor_class
    if isinstance(found, str):
        try:
            found = pkgutil.resolve_name(found)
        except (ImportError, AttributeError, ValueError) as error:
            raise OptionError(
                f"actor_class {config.actor_class!r} of deployment actor {config.name!r} cannot be "
                f"found: {error}"
            ) from error
    # What ray.remote returns holds the class.
    found = getattr(getattr(found, "__ray_metadata__", None), "modified_class", found)
    if not inspect.isclass(found):
        raise OptionError(
            f"actor_class of deployment actor {config.name!r} is {found!r}; allowed: a class, or "
            f"an import path such as 'package.module:Class'"
        )
    return found


def _concurrency_of(actor_class: type[Any]) -> int:
    methods = inspect.getmembers(actor_class, inspect.isfunction)
    has_coroutines = any(
        inspect.iscoroutinefunction(each) or inspect.isasyncgenfunction(each) for _, each in methods
    )
    return _CONCURRENCY_OF_COROUTINES if has_coroutines else _CONCURRENCY_OF_THREADS
