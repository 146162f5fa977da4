"""Which methods of a deployment may be called again after a call of them has started."""

from __future__ import annotations

import inspect
from collections.abc import Mapping

from google.protobuf.descriptor_pb2 import MethodOptions as ProtoOptions

from pyserve.api.method import options_of
from pyserve.batching import Batched
from pyserve.replica.checks import Method

_SAFE = (ProtoOptions.IDEMPOTENT, ProtoOptions.NO_SIDE_EFFECTS)


def idempotent_paths(target: object, rpcs: Mapping[str, Method], plain_service: str) -> list[str]:
    """Return the paths of such methods, those that handles use included.

    ``@pyserve.method(idempotent=)`` decides; where it says nothing, ``idempotency_level`` of the
    ``.proto`` does.

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
        safe[path] = safe[f"/{plain_service}/{rpc.descriptor.name}"] = is_safe
    names = dir(target) if isinstance(target, type) else ()
    for name in (*names, "__call__"):
        if name.startswith("_") and name != "__call__":
            continue
        found = inspect.getattr_static(target, name, None) if names else target
        marked = options_of(_function(found)).idempotent
        safe.setdefault(f"/{plain_service}/{name}", marked is True)
    return sorted(path for path, is_safe in safe.items() if is_safe)


def _function(static: object) -> object:
    if isinstance(static, staticmethod | classmethod):
        return static.__func__
    return static.function if isinstance(static, Batched) else static
