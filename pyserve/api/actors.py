"""Helpers that replicas of a deployment share: deployments of one replica, reached by name."""

from __future__ import annotations

import inspect
import pkgutil
from typing import Any

from pyserve.api.context import expect_calls, get_replica_context
from pyserve.api.deployment import Application, Deployment
from pyserve.api.handles.handle import DeploymentHandle
from pyserve.config.options import DeploymentOptions
from pyserve.config.placement import DeploymentActorConfig, deployment_name
from pyserve.errors import OptionError

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
