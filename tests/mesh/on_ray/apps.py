"""What these tests serve from a cluster."""

from __future__ import annotations

import asyncio
import os

import pyserve
from services.echo import echo_pb2, echo_pb2_grpc
from tests.mesh.changes.apps import Journal

# Some of 200 calls a second are always in flight at each replica.
_CALL_S = 0.02


@pyserve.deployment
class Prices:
    """Says what things cost, in the currency of its environment."""

    def __call__(self, request: dict[str, str]) -> dict[str, str]:
        return {request["of"]: f"{len(request['of'])} {os.environ['CURRENCY']}"}


@pyserve.deployment(
    num_replicas=3,
    max_replicas_per_node=1,
    ray_actor_options={"num_cpus": 0.1, "resources": {"prism": 1}},
    health_check_period_s=60.0,
)
class Noting(echo_pb2_grpc.EchoServicer):
    """Notes each call that it begins, with its node and process."""

    def __init__(self, journal: str) -> None:
        self._journal = Journal(journal)
        self._node = os.environ["PYSERVE_NODE_ID"]

    async def Echo(self, request: echo_pb2.EchoRequest) -> echo_pb2.EchoReply:  # type: ignore[override]  # the context may be left out
        self._journal.note(f"{self._node} {os.getpid()} {request.payload.decode()}")
        await asyncio.sleep(_CALL_S)
        return echo_pb2.EchoReply(payload=request.payload)


@pyserve.deployment(ray_actor_options={"num_cpus": 0.1})
class Adding:
    """Adds what it is given."""

    def __call__(self, first: int, others: list[int], named: dict[str, int]) -> int:
        return first + sum(others) + sum(named.values())


def noting(arguments: dict[str, str]) -> pyserve.Application:
    """Return the application that notes into a file."""
    application: pyserve.Application = Noting.bind(arguments["journal"])
    return application


prices = Prices.bind()
adding = Adding.bind()
