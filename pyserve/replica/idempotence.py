"""Which methods of a deployment may be called again after a call of them has started."""

from __future__ import annotations

import inspect
import logging
import re
from collections.abc import Mapping, Sequence
from typing import Any

from google.protobuf.descriptor_pb2 import MethodOptions as ProtoOptions

from pyserve.api.class_routes import routes_with_paths
from pyserve.api.method import options_of
from pyserve.batching import Batched
from pyserve.replica.checks import Method
from pyserve.stepping.decorator import is_stepped

_LOGGER = logging.getLogger(__name__)
# Requests by other verbs are repeated anyway.
_VERBS = {"POST", "PATCH"}
# Parameters of Starlette's paths: the rest of a path, a segment, and what is neither.
_REST = re.compile(r"(?<=/)\{[^{}:]+:path\}\Z")
_PARAMETER = re.compile(r"(?<=/)\{(?!\*)[^{}:]+(:(?!path)\w+)?\}(?=/|\Z)")
_HALF_PARAMETER = re.compile(r"(?<=/)(?!\{\*?\}(/|\Z))[^/]*\{.*")
_SAFE = (ProtoOptions.IDEMPOTENT, ProtoOptions.NO_SIDE_EFFECTS)


def idempotent_paths(target: object, rpcs: Mapping[str, Method], plain_service: str) -> list[str]:
    """Return the paths of such methods, those that handles use included.

    ``@pyserve.method(idempotent=)`` decides; where it says nothing, ``idempotency_level`` of the
    ``.proto`` does. A call that steps answer has not started before its answer's head.

    Args:
        target: The class, or the function that is deployed.
        rpcs: The implemented RPCs by path.
        plain_service: ``application.Deployment``.
    """
    safe: dict[str, bool] = {}
    for path, rpc in rpcs.items():
        marked = options_of(_function(rpc.function)).idempotent
        in_proto = rpc.descriptor.GetOptions().idempotency_level in _SAFE
        is_safe = in_proto if marked is None else marked
        is_safe = is_safe or is_stepped(rpc.function)
        safe[path] = safe[f"/{plain_service}/{rpc.descriptor.name}"] = is_safe
    names = dir(target) if isinstance(target, type) else ()
    for name in (*names, "__call__"):
        if name.startswith("_") and name != "__call__":
            continue
        found = inspect.getattr_static(target, name, None) if names else target
        marked = options_of(_function(found)).idempotent
        is_safe = marked is True or is_stepped(found)
        safe.setdefault(f"/{plain_service}/{name}", is_safe)
    return sorted(path for path, is_safe in safe.items() if is_safe)


def repeatable_http(target: object) -> list[str]:
    """Return which plain HTTP requests of a class or a function may be repeated.

    ``*``: all, since ``__call__`` is marked. ``* unstarted``: those of which the replica has not
    told that work on them has begun; steps answer them.
    """
    is_class = isinstance(target, type)
    call = inspect.getattr_static(target, "__call__", None) if is_class else target
    if options_of(_function(call)).idempotent is True:
        return ["*"]
    return ["* unstarted"] if is_stepped(call) else []


def idempotent_routes(app: Any) -> list[str]:
    """Return the routes of an application whose endpoints are marked: ``POST /v1/items/{}``.

    ``{}`` is any segment of the path and ``{*}`` any rest. A route is left out, with a warning,
    where the ingress cannot tell its requests from those of a route that is not marked.

    Args:
        app: An ASGI application; of others than FastAPI's nothing is known.
    """
    marked: list[tuple[str, str]] = []
    others: list[tuple[str, str]] = []
    for path, route in routes_with_paths(app):
        found = marked if options_of(route.endpoint).idempotent is True else others
        found.extend((verb, path) for verb in sorted(_VERBS & set(route.methods)))
    return [f"{verb} {_shape(path)}" for verb, path in marked if _is_told(verb, path, others)]


def _is_told(verb: str, path: str, others: Sequence[tuple[str, str]]) -> bool:
    shape = _shape(path)
    confused = [other for by, other in others if by == verb and _may_meet(shape, _shape(other))]
    if _HALF_PARAMETER.search(_with_parameters(path)):
        confused.append("others of that form")
    if confused:
        _LOGGER.warning(
            "%s %s is marked as idempotent, but its requests are not repeated: its path may be "
            "that of %s, too",
            verb,
            path,
            confused[0],
        )
    return not confused


def _shape(path: str) -> str:
    """Return the path with its parameters as the ingress knows them."""
    return _HALF_PARAMETER.sub("{*}", _with_parameters(path))


def _with_parameters(path: str) -> str:
    return _PARAMETER.sub("{}", _REST.sub("{*}", path))


def _may_meet(one: str, other: str) -> bool:
    """Say whether some path fits both shapes."""
    mine, theirs = one.split("/"), other.split("/")
    for pair in zip(mine, theirs, strict=False):
        if "{*}" in pair:
            return True
        if pair[0] != pair[1] and "{}" not in pair:
            return False
    return len(mine) == len(theirs)


def _function(static: object) -> object:
    if isinstance(static, staticmethod | classmethod):
        return static.__func__
    return static.function if isinstance(static, Batched) else static
