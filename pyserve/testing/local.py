"""Applications in this process for as long as a block lasts, and the environment of user code."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from pyserve.api.context import ReplicaContext, as_local_replica
from pyserve.driver.api import delete, run
from pyserve.driver.local import end_local, find_local
from pyserve.errors import WrongMoment
from pyserve.request import CURRENT, Request
from pyserve.types import ApplicationName, DeploymentName, ReplicaId, ReplicaRank

if TYPE_CHECKING:
    from pyserve.api.deployment import Application
    from pyserve.api.handles.handle import DeploymentHandle


@contextmanager
def local(
    app: Application, *, name: str = "default", timeout_s: float | None = 60.0
) -> Iterator[DeploymentHandle[Any]]:
    """Run an application in this process until the block ends, and yield its handle.

    It is what ``pyserve.run(app, local_testing_mode=True)`` does, with an end: calls in flight
    get their deployment's ``graceful_shutdown_timeout_s``, then instances are closed. Blocks may
    be nested under different names.

    Args:
        app: What ``bind`` returned.
        name: The application's name.
        timeout_s: How long constructors may take; ``None``: as long as they like.

    Raises:
        DeploymentFailed: User code could not be loaded, or raised.
        TimeoutError: It was not ready in time.
        WrongMoment: An application of that name runs in this process already.
    """
    runtime = find_local()
    if runtime is not None and ApplicationName(name) in runtime.mesh.applications:
        # It would be replaced under the eyes of the block that runs it, such as a fixture's.
        raise WrongMoment(
            f"an application {name!r} runs in this process already, of a fixture perhaps; end it "
            f"first, or give one of them another name: name=..."
        )
    handle = run(app, name=name, timeout_s=timeout_s, local_testing_mode=True)
    try:
        yield handle
    finally:
        delete(name)
        runtime = find_local()
        if runtime is not None and not runtime.mesh.applications:
            end_local()  # No thread is left behind.


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
