"""The environment of user code in a replica, for tests that call the code directly."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from pyserve.api.context import ReplicaContext, as_local_replica
from pyserve.request import CURRENT, Request
from pyserve.types import ApplicationName, DeploymentName, ReplicaId, ReplicaRank


@contextmanager
def request(
    *,
    multiplexed_model_id: str = "",
    timeout_s: float | None = None,
    request_id: str = "",
    application: str = "test",
    deployment: str = "test",
    method: str = "test",
) -> Iterator[Request]:
    """Make the code of the block handle a request, with its id, its model and its deadline.

    Tasks and threads that are started inside inherit it. The request ends with the block, and what
    was kept for it (a model in use, a held value) is released.

    Args:
        multiplexed_model_id: What ``get_multiplexed_model_id`` returns.
        timeout_s: Seconds until its deadline; ``None``: it has none.
        request_id: Its id; ``""``: a new one.
        application: What it says is being called.
        deployment: The same.
        method: The same.
    """
    made = Request(
        request_id=request_id,
        multiplexed_model_id=multiplexed_model_id,
        deadline=None if timeout_s is None else time.monotonic() + timeout_s,
        application=application,
        deployment=deployment,
        method=method,
    )
    token = CURRENT.set(made)
    try:
        yield made
    finally:
        CURRENT.reset(token)
        made.end()


@contextmanager
def replica(
    servable_object: object = None,
    *,
    application: str = "test",
    deployment: str = "test",
    replica_id: str = "test#1",
    rank: int = 0,
    world_size: int = 1,
) -> Iterator[ReplicaContext]:
    """Let code of the block run in a replica, as ``get_replica_context`` sees it.

    Args:
        servable_object: The instance of the class under test.
        application: Who the replica is.
        deployment: The same.
        replica_id: The same.
        rank: Its number among the replicas, all of which run on one node.
        world_size: How many there are.
    """
    context = ReplicaContext(
        app_name=ApplicationName(application),
        deployment=DeploymentName(deployment),
        replica_id=ReplicaId(replica_id),
        servable_object=servable_object,
        rank=ReplicaRank(rank, 0, rank),
        world_size=world_size,
    )
    with as_local_replica(context):
        yield context
