"""``grpc.health.v1.Health`` of the ingress: Check, List and Watch of every service of the mesh.

Statuses change in the loop's thread and never wait for anybody. A watcher sends what holds when
it gets to it, so one that reads slowly misses states in between and holds nobody up.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import grpc
from grpc_health.v1 import health_pb2

if TYPE_CHECKING:
    # The messages differ by method, and the real class is not generic.
    Context = grpc.aio.ServicerContext[Any, Any]

# An enumeration of protobuf, whose members are integers.
Status = int
SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING
SERVICE_UNKNOWN = health_pb2.HealthCheckResponse.SERVICE_UNKNOWN
# The ingress as a whole, by the protocol's own convention.
_ALL = ""


class HealthService:
    """The health of services by full name; ``""`` is the ingress itself.

    Args:
        watchers_max: streams of ``Watch`` at once. They stay open, so without a bound they would
            take the places of clients that only call ``Check``.
    """

    def __init__(self, *, watchers_max: int) -> None:
        self._statuses: dict[str, Status] = {_ALL: SERVING}
        self._changed = asyncio.Event()
        self._watchers = 0
        self._watchers_max = watchers_max
        self.is_draining = False

    def show(self, statuses: Mapping[str, Status]) -> None:
        """Replace the statuses of all services; ignored during a drain."""
        if not self.is_draining:
            self._replace({_ALL: SERVING, **statuses})

    def begin_drain(self) -> None:
        """Report NOT_SERVING for all services from now on. Idempotent."""
        self.is_draining = True
        self._replace(dict.fromkeys(self._statuses, NOT_SERVING))

    def _replace(self, statuses: dict[str, Status]) -> None:
        if statuses != self._statuses:
            self._statuses = statuses
            # The present waiters hold this event; later ones wait for the next one.
            self._changed.set()
            self._changed = asyncio.Event()

    async def Check(
        self, request: health_pb2.HealthCheckRequest, context: Context
    ) -> health_pb2.HealthCheckResponse:
        """Return the status of one service; NOT_FOUND if there is no service of that name."""
        status = self._statuses.get(request.service)
        if status is None:
            await context.abort(
                grpc.StatusCode.NOT_FOUND,
                f"no deployment has a service {request.service!r}; List names those that exist",
            )
        return health_pb2.HealthCheckResponse(status=status)

    async def List(
        self, request: health_pb2.HealthListRequest, context: Context
    ) -> health_pb2.HealthListResponse:
        """Return the status of every service."""
        del request, context
        return health_pb2.HealthListResponse(
            statuses={
                name: health_pb2.HealthCheckResponse(status=status)
                for name, status in self._statuses.items()
            }
        )

    async def Watch(self, request: health_pb2.HealthCheckRequest, context: Context) -> None:
        """Send the status of one service now and whenever it changes, until the client goes."""
        if self._watchers >= self._watchers_max:
            await context.abort(
                grpc.StatusCode.RESOURCE_EXHAUSTED,
                f"{self._watchers} streams of Watch are open, which is the limit; use Check",
            )
        self._watchers += 1
        try:
            sent: Status | None = None
            while True:
                changed = self._changed
                status = self._statuses.get(request.service, SERVICE_UNKNOWN)
                if status != sent:
                    sent = status
                    await context.write(health_pb2.HealthCheckResponse(status=status))
                else:
                    await changed.wait()
        finally:
            self._watchers -= 1
