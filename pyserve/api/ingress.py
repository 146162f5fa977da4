"""``@pyserve.ingress(app)``: an ASGI application in the replicas of a class.

The decorator leaves the class what it is and remembers the application on it. Routes that were
made of the class's methods (``@app.get(...)`` inside the class body) get their ``self`` from the
replica; see ``class_routes``.
"""

from __future__ import annotations

import inspect
import logging
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar, cast, overload

import cloudpickle

from pyserve.api.class_routes import (
    bind_routes,
    is_router,
    keep_routes_of,
    mark_methods,
    methods_among,
    require_bound,
    routes_with_paths,
    websocket_routes,
)
from pyserve.api.code import import_attribute, unwrap
from pyserve.api.deployment import Application, Deployment
from pyserve.api.modules import INGRESS_ATTRIBUTE, is_importable, names_of
from pyserve.api.pickling import dumps
from pyserve.errors import ImportPathError, UsageError
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


# How the application of an ingress reaches replicas: as `module:name` where a module has it.
#
# Functions travel by reference and use the objects of their module. A pickled application would
# bring copies of its state and of what is mounted in it, which those functions do not know. So it
# is imported wherever importing gives it. A copy goes along, and is served if what was imported
# lacks something: what code outside of all modules, or after their import, has added.

_LOGGER = logging.getLogger(__name__)
# A copy is the exception, and large ones hold weights. Arbitrary.
_COPY_BYTES_MAX = 16 << 20
# Middlewares around an application whose ``app`` is followed. Arbitrary: few are ever nested.
_WRAPPERS_MAX = 16


def reference(source: object) -> tuple[Any, ...] | None:
    """Return what ``restore`` takes; ``None``: the application has to travel by value.

    Args:
        source: What was given to ``ingress``.
    """
    if _has_code_of_no_module(source):
        return None
    if not (paths := tuple(_paths(source))):
        return None
    try:
        copy = dumps(source, bytes_max=_COPY_BYTES_MAX)
    except Exception:  # It need not travel by value.
        copy = b""
    return paths, tuple(sorted(_traits(source))), copy


def restore(paths: tuple[str, ...], traits: tuple[str, ...], copy: bytes) -> object:
    """Return what ``reference`` has been given, from this process's modules if they have it.

    Further modules are imported only while something is missing, which they may add.

    Raises:
        UsageError: The modules lack something, and there is no copy.
        Exception: Whatever a module raises while it is imported.
    """
    reason = ""
    found: object = None
    for path in paths:
        try:
            here = _source_at(path)
        except ImportPathError as error:
            reason = reason or f"cannot be found ({error})"
            continue
        found = here if found is None else found
        if not (missing := sorted(set(traits) - _traits(found))):
            return found
        reason = f"lacks {', '.join(missing)}"
    text = (
        f"the application {paths[0]}, imported in the replica, {reason}: code that does not run "
        f"when its module is imported has made that"
    )
    advice = (
        "Make it when the module is imported, or in the lifespan, or give pyserve.ingress a "
        "function that builds the application"
    )
    if not copy:
        raise UsageError(f"{text}. {advice}")
    _LOGGER.warning("%s; a pickled copy is served, with state of its own. %s", text, advice)
    return cast("object", cloudpickle.loads(copy))


def _paths(source: object) -> Iterator[str]:
    """Yield the paths to ``source``: one for each module, in the order in which imports ended.

    So the module that made it comes before those that have imported it from there.
    """
    for module_name, module in list(sys.modules.items()):
        if not is_importable(module_name, module):
            continue
        # A name that stands for the application itself comes before one of an object that runs it.
        for leads in (_is_it, _runs_it):
            known = list(names_of(module).items())
            name = next((each for each, value in known if leads(value, source)), None)
            if name is not None:
                yield f"{module_name}:{name}"
                break


def _is_it(value: object, source: object) -> bool:
    return value is source


def _runs_it(value: object, source: object) -> bool:
    # By the type: a module may hold proxies, whose ``__class__`` is not to be asked.
    if not issubclass(type(value), Application | Deployment | type):
        return False
    found = _ingress_on(value)
    return found is not None and found.source is source


def _ingress_on(value: object) -> Any:
    return getattr(unwrap(value), "__dict__", {}).get(INGRESS_ATTRIBUTE)


def _source_at(path: str) -> object:
    found = import_attribute(path)
    if issubclass(type(found), Application | Deployment | type):
        ingress = _ingress_on(found)
        if ingress is None:
            raise ImportPathError(f"{path!r} is {found!r}, which serves no application")
        return ingress.source
    return found


def _has_code_of_no_module(source: object) -> bool:
    """Say whether the application has routes that no import makes.

    Those are functions of ``__main__`` and of notebooks, and methods of classes in functions.
    """
    inner = _unwrapped(source)
    if any("<locals>" in method.__qualname__ for method in methods_among(inner)):
        return True
    endpoints = [getattr(route, "endpoint", None) for _, route in _routes(inner)]
    names = {getattr(each, "__module__", None) for each in (source, *endpoints)}
    return any(name and not is_importable(name, sys.modules.get(name)) for name in names)


def _traits(source: object) -> set[str]:
    """Return the properties of an application, in words."""
    inner = _unwrapped(source)
    found = set()
    for path, route in _routes(inner):
        methods = ",".join(sorted(map(str, _held(route, "methods"))))
        found.add(f"the route {f'{methods} {path}'.strip()}")
    found.update(f"state.{name}" for name in _held(getattr(inner, "state", None), "_state"))
    for each in _held(inner, "user_middleware"):
        found.add(f"the middleware {_name_of_value(getattr(each, 'cls', each))}")
    found.update(
        f"the handler of {_name_of_value(kind)}" for kind in _held(inner, "exception_handlers")
    )
    found.update(
        f"the override of {_name_of_value(each)}" for each in _held(inner, "dependency_overrides")
    )
    return found


def _routes(app: Any) -> Iterator[tuple[str, Any]]:
    yield from routes_with_paths(app)
    for route in (*_held(app, "routes"), *websocket_routes(app)):
        if isinstance(path := getattr(route, "path", None), str):
            yield path, route


def _held(owner: object, name: str) -> Iterable[Any]:
    """Return a collection that frameworks have by this name; others may mean something else."""
    found = getattr(owner, name, None)
    return found if isinstance(found, list | tuple | dict | set | frozenset) else ()


def _name_of_value(value: Any) -> str:
    # No ``repr`` of an object, which has its address.
    return str(getattr(value, "__qualname__", value if isinstance(value, int) else type(value)))


def _unwrapped(source: Any) -> Any:
    """Return what is inside of ASGI middlewares, which keep it as ``app`` by convention."""
    for _ in range(_WRAPPERS_MAX):
        inner = getattr(source, "app", None)
        if hasattr(source, "routes") or inner is None:
            break
        source = inner
    return source
