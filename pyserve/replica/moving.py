"""Where requests of a replica that ends go on: at another replica of its deployment."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

from pyserve.api.context import attached, get_replica_context
from pyserve.api.handles.handle import DeploymentHandle
from pyserve.errors import DeploymentUnavailable
from pyserve.stepping.moving import Moved
from pyserve.types import DeploymentKey


async def values_elsewhere(moved: Moved, wants_each: bool) -> AsyncGenerator[object]:
    """Yield the values of a moved request from another replica: each, or only the last.

    A router picks the replica, as for any call; this one refuses it. The call has the deadline of
    the request in whose context this runs.

    Args:
        moved: The request.
        wants_each: Whether its caller reads every value.

    Raises:
        DeploymentUnavailable: There is no other replica.
        Exception: What the call failed with.
    """
    own = get_replica_context()
    key = DeploymentKey(own.app_name, own.deployment)
    others = [each for each, _, _ in attached().caller(key).replicas() if each != own.replica_id]
    if not others:
        raise DeploymentUnavailable(f"{key} has no other replica that is ready")
    # A snapshot is what only Python knows, whatever codec the deployment has for its values.
    handle: Any = DeploymentHandle(key.deployment, key.application, request_serialization="pickle")
    if not wants_each:
        yield await handle.remote(moved)
        return
    async with aclosing(handle.options(stream=True).remote(moved)) as values:
        async for value in values:
            yield value
