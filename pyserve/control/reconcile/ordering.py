"""Callers end before the deployments they call, so that calls in flight can finish. Pure.

Callers are known from the handles among the arguments of constructors. A deployment that is to end
keeps its replicas until those that call it, and are ending too, have ended; each tier has
``CALLERS_END_TIMEOUT_S`` for that at most. Callers that stay, that are not waited for any more, or
that are called back by those they call, delay nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

from pyserve.config.control import CALLERS_END_TIMEOUT_S
from pyserve.control.state.mesh import Desired, Phase, Replica
from pyserve.types import DeploymentKey


def turn_at(
    deployment: Desired,
    desired: Mapping[DeploymentKey, Desired],
    replicas: Mapping[DeploymentKey, Sequence[Replica]],
) -> float:
    """Return when the replicas of a deployment that is to end may be stopped.

    Args:
        deployment: which one.
        desired: every deployment.
        replicas: of each of them.

    Returns:
        A time that may have passed, or infinity while that of its callers is not known.
    """
    limit = max(
        (
            math.inf if caller.stopping_at is None else caller.stopping_at + CALLERS_END_TIMEOUT_S
            for caller in _callers(deployment.key, desired, replicas)
        ),
        default=-math.inf,
    )
    return limit if deployment.ends_by is None else min(limit, deployment.ends_by)


def _callers(
    key: DeploymentKey,
    desired: Mapping[DeploymentKey, Desired],
    replicas: Mapping[DeploymentKey, Sequence[Replica]],
) -> Iterator[Replica]:
    """Yield the replicas that are ending, or about to, and may call ``key`` until then."""
    called = _called_from(key, replicas)
    for caller, items in replicas.items():
        if caller == key or caller in called:
            continue
        is_leaving = caller not in desired or desired[caller].target is None
        for item in items:
            if (
                key in item.calls
                and (is_leaving or item.phase is Phase.STOPPING)
                and item.options.graceful_shutdown_timeout_s > 0
            ):
                yield item


def _called_from(
    key: DeploymentKey, replicas: Mapping[DeploymentKey, Sequence[Replica]]
) -> set[DeploymentKey]:
    """Return the deployments that a deployment's replicas call, directly or through others."""
    found: set[DeploymentKey] = set()
    ahead = [key]
    while ahead:
        for item in replicas.get(ahead.pop(), ()):
            ahead += item.calls - found
            found |= item.calls
    return found
