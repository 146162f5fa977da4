"""Routes whose endpoints are methods of a class: who gives them ``self``, and whose they are.

``@app.get("/x")`` in a class body hands FastAPI a plain function whose first parameter is
``self``, which it takes for a parameter of the query. Here such a route gets another endpoint: a
function without that parameter, which calls the method of the replica's instance, so that an
override in a subclass counts. The route is analysed again in its place; order, path and options
stay. Everything is known when the replica starts: a request pays for one look-up of the instance.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator
from typing import Any

from pyserve.api.context import get_replica_context
from pyserve.batching import Batched
from pyserve.errors import UsageError
from pyserve.signatures import read_signature

# On an endpoint that gets its `self` from the replica: the function in the class body.
_FUNCTION = "__pyserve_function__"
# On the functions in the body of a class that is an ingress: a route in a router that is included
# in the application later must still be known as a method.
_IS_METHOD = "__pyserve_is_method__"


def bind_routes(app: Any, target: type) -> None:
    """Give ``self`` to the routes of ``app`` that are methods of ``target`` or of its bases.

    Applications that are not FastAPI's have no such routes. Idempotent.

    Raises:
        UsageError: A method has no parameter for ``self``.
    """
    for route in _routes(app):
        if getattr(route.endpoint, _FUNCTION, None) is None:
            name = _method_name(target, route.endpoint) or _kept_name(target, route.endpoint)
            if name is not None:
                _replace_endpoint(route, _without_self(target, name, route.endpoint))


def mark_methods(target: type) -> None:
    """Remember of the functions of ``target`` and its bases that they belong to an ingress."""
    for owner in target.__mro__:
        for static in vars(owner).values():
            for layer in _layers(static):
                if inspect.isfunction(layer):
                    vars(layer)[_IS_METHOD] = True


def keep_routes_of(app: Any, target: type) -> None:
    """Remove the routes of ``app`` that are methods of other classes than ``target``'s bases.

    One application may be the ingress of several classes: each one serves its own methods.
    """
    for router in _routers(app):
        kept = [route for route in router.routes if not _is_foreign(route, target)]
        if len(kept) != len(router.routes):
            router.routes[:] = kept
            _note_change(router)


def _is_foreign(route: Any, target: type) -> bool:
    endpoint = getattr(route, "endpoint", None)
    function = getattr(endpoint, _FUNCTION, None)
    if function is None and getattr(endpoint, _IS_METHOD, False):
        function = getattr(
            endpoint, "__func__", endpoint
        )  # Of a bound one that a constructor adds.
    return function is not None and _method_name(target, function) is None


def require_bound(app: Any, target: type) -> None:
    """Refuse routes that are methods of a class that is not an ingress.

    Raises:
        UsageError: There is one; the text names it.
    """
    for route in _routes(app):
        endpoint = route.endpoint
        if getattr(endpoint, _FUNCTION, None) is None and _looks_like_method(endpoint):
            raise UsageError(
                f"the route {route.path!r} of the ingress of {target.__qualname__} is the method "
                f"{endpoint.__qualname__}, which gets no `self`: its class is neither "
                f"{target.__qualname__} nor one of its bases; decorate that class with "
                f"@pyserve.ingress too, or derive from it"
            )


def _looks_like_method(endpoint: Any) -> bool:
    if not inspect.isfunction(endpoint):
        return False
    owner = endpoint.__qualname__.rpartition(".")[0]
    first = next(iter(read_signature(endpoint).parameters), "")
    return bool(owner) and not owner.endswith("<locals>") and first == "self"


def _routers(app: Any) -> Iterator[Any]:
    """Yield the router of a FastAPI application, and all that are included in it."""
    if not _is_fastapi(app):
        return
    from fastapi import APIRouter

    waiting = [getattr(app, "router", app)]
    seen: set[int] = set()
    while waiting:
        router = waiting.pop()
        if not isinstance(router, APIRouter) or id(router) in seen:
            continue
        seen.add(id(router))
        yield router
        # Since 0.13x what is included stays a router; before, its routes were copied.
        waiting += [getattr(route, "original_router", None) for route in router.routes]


def _routes(app: Any) -> Iterator[Any]:
    for router in _routers(app):
        from fastapi.routing import APIRoute, APIWebSocketRoute

        for route in router.routes:
            if isinstance(route, APIRoute | APIWebSocketRoute):
                yield route


def methods_among(app: Any) -> Iterator[Callable[..., Any]]:
    """Yield the functions in class bodies that are routes of ``app`` with a ``self``."""
    for route in _routes(app):
        if (function := getattr(route.endpoint, _FUNCTION, None)) is not None:
            yield inspect.unwrap(function)


def websocket_routes(app: Any) -> Iterator[Any]:
    """Yield the WebSocket routes of a FastAPI application and of the routers it includes."""
    return (route for route in _routes(app) if not hasattr(route, "methods"))


def routes_with_paths(app: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the HTTP routes of a FastAPI application with their whole paths, in order.

    Those of routers that are included count; mounted applications keep theirs to themselves.
    """
    if not _is_fastapi(app):
        return
    from fastapi.routing import APIRoute

    for route in getattr(app, "router", app).routes:
        if isinstance(route, APIRoute):
            yield prefix + route.path, route
        elif (included := getattr(route, "original_router", None)) is not None:
            inner = getattr(route.include_context, "prefix", "")
            yield from routes_with_paths(included, prefix + inner)


def is_router(app: Any) -> bool:
    """Return whether this is a FastAPI router, which is not an application by itself."""
    return _is_fastapi(app) and hasattr(app, "default_response_class")


def _is_fastapi(app: Any) -> bool:
    # Without an import: the package need not be there.
    return any(base.__module__.partition(".")[0] == "fastapi" for base in type(app).__mro__)


def _method_name(target: type, endpoint: Any) -> str | None:
    """Return under which name ``target`` or one of its bases holds ``endpoint`` as a method."""
    for owner in target.__mro__:
        for name, static in vars(owner).items():
            if isinstance(static, staticmethod | classmethod):
                continue  # They need no instance; FastAPI calls them as they are.
            if any(layer is endpoint for layer in _layers(static)):
                return name
    return None


def _kept_name(target: type, endpoint: Any) -> str | None:
    """Keep a function whose name the class body has redefined; return its new name in the class.

    After ``@app.get("/x") def x(self)`` and then ``@app.post("/x") def x(self)`` the class has
    only the second function, and the application has both.
    """
    if not inspect.isfunction(endpoint) and not isinstance(endpoint, Batched):
        return None  # Bound and static functions need no instance.
    for owner in target.__mro__:
        name = getattr(endpoint, "__name__", "")
        place = getattr(endpoint, "__module__", ""), getattr(endpoint, "__qualname__", "")
        newer = vars(owner).get(name)
        # A notebook cell that is run again makes a class with the same name in another file.
        if place == (owner.__module__, f"{owner.__qualname__}.{name}") and (
            _files(endpoint) & _files(newer)
        ):
            kept = f"_{name}_before_{len(vars(owner))}"
            setattr(owner, kept, endpoint)
            return kept
    return None


def _files(static: Any) -> set[str]:
    codes = (getattr(layer, "__code__", None) for layer in _layers(static))
    return {code.co_filename for code in codes if code is not None}


def _layers(static: Any) -> Iterator[Any]:
    """Yield what a class holds, and what decorators have wrapped in it."""
    seen = 0
    while static is not None and seen < 32:  # Wrappers that refer to each other would not end.
        yield static
        seen += 1
        static = static.function if isinstance(static, Batched) else _wrapped(static)


def _wrapped(static: Any) -> Any:
    return getattr(static, "__dict__", {}).get("__wrapped__")


def _without_self(target: type, name: str, function: Any) -> Callable[..., Any]:
    newest = inspect.getattr_static(target, name)
    signature = read_signature(newest if callable(newest) else function)
    parameters = list(signature.parameters.values())
    if not parameters or parameters[0].kind is inspect.Parameter.KEYWORD_ONLY:
        raise UsageError(
            f"{target.__qualname__}.{name} is a route and a method, but has no parameter for the "
            f"instance; write `self` first, or make it a @staticmethod"
        )
    endpoint = _endpoint(name, newest if callable(newest) else function)
    vars(endpoint)["__signature__"] = signature.replace(parameters=parameters[1:])
    vars(endpoint)[_FUNCTION] = function
    return endpoint


def _endpoint(name: str, method: Any) -> Callable[..., Any]:
    # FastAPI looks through __wrapped__ for how to run it: awaited, iterated, or in a thread.
    @functools.wraps(method)
    def endpoint(*arguments: Any, **keywords: Any) -> Any:
        return getattr(get_replica_context().servable_object, name)(*arguments, **keywords)

    return endpoint


def _replace_endpoint(route: Any, endpoint: Callable[..., Any]) -> None:
    """Analyse a route again, with another endpoint, where it stands."""
    from fastapi.routing import APIRoute, APIWebSocketRoute

    kind: Any = APIRoute if isinstance(route, APIRoute) else APIWebSocketRoute
    keywords = {
        name: getattr(route, name)
        for name in inspect.signature(kind.__init__).parameters
        if name not in {"self", "path", "endpoint"} and hasattr(route, name)
    }
    if getattr(route, "stream_item_type", None) is not None:
        keywords.pop("response_model", None)  # What the items are is read from the annotation.
    kind.__init__(route, route.path, endpoint, **keywords)


def _note_change(router: Any) -> None:
    """Tell a router that its list of routes is another one, where versions are counted."""
    note = getattr(router, "_mark_routes_changed", None)
    if note is not None:
        note()
