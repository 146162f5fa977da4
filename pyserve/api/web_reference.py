"""How the application of an ingress reaches replicas: as ``module:name`` where a module has it.

Functions travel by reference and use the objects of their module. A pickled application would
bring copies of its state and of what is mounted in it, which those functions do not know. So it is
imported wherever importing gives it. A copy goes along, and is served if what was imported lacks
something: what code outside of all modules, or after their import, has added.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterable, Iterator
from typing import Any, cast

import cloudpickle

from pyserve.api.class_routes import methods_among, routes_with_paths, websocket_routes
from pyserve.api.code import import_attribute, unwrap
from pyserve.api.deployment import Application, Deployment
from pyserve.api.modules import INGRESS_ATTRIBUTE, is_importable, names_of
from pyserve.api.pickling import dumps
from pyserve.errors import ImportPathError, UsageError

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
        # A name that stands for the application itself comes before one for what runs it.
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
    """Return what can be told of an application, in words."""
    inner = _unwrapped(source)
    found = set()
    for path, route in _routes(inner):
        methods = ",".join(sorted(map(str, _held(route, "methods"))))
        found.add(f"the route {f'{methods} {path}'.strip()}")
    found.update(f"state.{name}" for name in _held(getattr(inner, "state", None), "_state"))
    for each in _held(inner, "user_middleware"):
        found.add(f"the middleware {_name(getattr(each, 'cls', each))}")
    found.update(f"the handler of {_name(kind)}" for kind in _held(inner, "exception_handlers"))
    found.update(f"the override of {_name(each)}" for each in _held(inner, "dependency_overrides"))
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


def _name(value: Any) -> str:
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
