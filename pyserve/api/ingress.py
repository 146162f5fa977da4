"""``@pyserve.ingress(app)``: an ASGI application in the replicas of a class.

The decorator leaves the class what it is and remembers the application on it. Routes that were
made of the class's methods (``@app.get(...)`` inside the class body) get their ``self`` from the
replica; see ``class_routes``.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, TypeVar, cast, overload

from pyserve.api.class_routes import (
    bind_routes,
    is_router,
    keep_routes_of,
    mark_methods,
    require_bound,
)
from pyserve.api.deployment import Deployment
from pyserve.api.modules import INGRESS_ATTRIBUTE
from pyserve.api.web_reference import reference, restore
from pyserve.errors import UsageError
from pyserve.signatures import read_signature

Target = TypeVar("Target", bound=type)

# As the deployment of an application without a class is named in the files of Ray Serve's users.
_EMPTY = "ASGIIngressDeployment"


class WebIngress:
    """The application of a class, or the function that builds it.

    Attributes:
        source: What was given to ``ingress``.
        is_factory: ``source`` builds the application; it takes no argument.
    """

    def __init__(self, source: Any) -> None:
        self.source = source
        self.is_factory = _is_factory(source)

    def __reduce__(self) -> tuple[Any, ...]:
        # This is pickled with a class that travels by value; its application need not.
        if (found := reference(self.source)) is not None:
            return _restored, found
        return WebIngress, (self.source,)

    async def build(self, target: type) -> Callable[..., Any]:
        """Return the application as the replicas of ``target`` serve it.

        Its routes are those of ``target``'s methods, and all that belong to no class.

        Raises:
            UsageError: The factory returned something else, or a method cannot be a route.
            Exception: Whatever the factory raises.
        """
        app = self.source
        if self.is_factory:
            app = app()
            if inspect.isawaitable(app):
                app = await app
            if not callable(app) or _is_factory(app):
                raise UsageError(
                    f"@pyserve.ingress on {target.__qualname__}: {_name(self.source)} returned "
                    f"{app!r}; return an ASGI application, such as a FastAPI instance"
                )
        bind_routes(app, target)
        keep_routes_of(app, target)
        require_bound(app, target)
        return cast("Callable[..., Any]", _application(app))


class IngressDecorator:
    """What ``ingress`` returns: decorates a class, or makes an empty one when called bare."""

    def __init__(self, app: Any) -> None:
        self._app = app

    @overload
    def __call__(self, target: None = None, /) -> type[Any]: ...
    @overload
    def __call__(self, target: Target, /) -> Target: ...
    def __call__(self, target: Any = None, /) -> Any:
        """Return ``target`` with the application.

        Raises:
            UsageError: It is no class, or has a ``__call__``, which no request would reach.
        """
        if target is None:
            # A name that no module has, so that it travels by value.
            members = {"__qualname__": f"ingress.<locals>.{_EMPTY}", "__init__": _keep_arguments}
            target = type(_EMPTY, (), {**members, "__module__": __name__})
        _check_target(target)
        mark_methods(target)
        if not _is_factory(self._app):
            bind_routes(self._app, target)
        setattr(target, INGRESS_ATTRIBUTE, WebIngress(self._app))
        return target


def _restored(*found: Any) -> WebIngress:
    return WebIngress(restore(*found))


def _keep_arguments(self: Any, *args: object, **kwargs: object) -> None:
    """Take what is bound, so that an application without a class may have deployments below it."""
    self.args, self.kwargs = args, kwargs


def ingress(app: Any, /) -> IngressDecorator:
    """Serve an ASGI application in the replicas of the decorated class.

    Everything below the application's route prefix goes to it: HTTP, server-sent events and
    WebSockets. Methods that ``@app.get(...)`` and the like decorate in the class body become
    routes whose ``self`` is the replica's instance. The class's other methods stay what they
    are: handles call them, and RPCs of its servicers.

    Written below ``@pyserve.deployment``::

        @pyserve.deployment
        @pyserve.ingress(app)
        class Greeter:
            @app.get("/greet")
            async def greet(self, name: str) -> str: ...

    Args:
        app: FastAPI, Starlette or any other ASGI 3 application; or a function without parameters
            that builds one, ``def`` or ``async def``, which every replica calls after the
            constructor of the class. Replicas import an application that a module has; one of
            ``__main__``, a notebook or a function is pickled.

    Raises:
        UsageError: ``app`` is neither.
    """
    _is_factory(app)  # Raises here, where the mistake is, and not below the class.
    return IngressDecorator(app)


def ingress_of(target: object) -> WebIngress | None:
    """Return what ``ingress`` has left on a class or on one of its bases."""
    found = getattr(target, INGRESS_ATTRIBUTE, None) if isinstance(target, type) else None
    return found if isinstance(found, WebIngress) else None


def _check_target(target: Any) -> None:
    if isinstance(target, Deployment):
        raise UsageError(
            f"@pyserve.ingress: {target.name!r} is a deployment already; write "
            f"@pyserve.deployment above @pyserve.ingress(app)"
        )
    if not isinstance(target, type):
        raise UsageError(
            f"@pyserve.ingress: {target!r} is no class; decorate the `class` whose replicas shall "
            f"serve the application"
        )
    if any("__call__" in vars(owner) for owner in target.__mro__):
        raise UsageError(
            f"@pyserve.ingress on {target.__qualname__}: it has a __call__, but all requests go to "
            f"the application; make it a route, or give it another name for handles"
        )


def _is_factory(app: Any) -> bool:
    """Tell a builder from an application by the number of arguments that it takes.

    Raises:
        UsageError: It can be neither.
    """
    if isinstance(app, type):
        raise UsageError(
            f"@pyserve.ingress: {app.__name__} is a class; give an instance of the application, "
            f"as in @pyserve.ingress(app), or a function that builds one"
        )
    if callable(app):
        try:
            signature = read_signature(app)
        except (TypeError, ValueError):  # It is written in C, as no builder is.
            return False
        if _takes(signature, 3):
            return False
        if _takes(signature, 0):
            return True
    raise UsageError(
        f"@pyserve.ingress: {app!r} is no ASGI application, which is called with (scope, receive, "
        f"send), and no function without parameters that builds one"
    )


def _takes(signature: inspect.Signature, count: int) -> bool:
    try:
        signature.bind(*range(count))
    except TypeError:
        return False
    return True


def _application(app: Any) -> Any:
    """Return ``app`` as it can be served: a FastAPI router cannot without an application."""
    if not is_router(app):
        return app
    from fastapi import FastAPI

    complete = FastAPI()
    complete.include_router(app)
    return complete


def _name(source: Any) -> str:
    return str(getattr(source, "__qualname__", repr(source)))
