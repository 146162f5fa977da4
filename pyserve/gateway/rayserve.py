"""``ray.serve.RayServeAPIService``, for probes and clients that were written for Ray Serve."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any

import grpc

from pyserve.wire.rayserve import api_pb2, api_pb2_grpc

if TYPE_CHECKING:
    # The messages differ by method, and the real class is not generic.
    Context = grpc.aio.ServicerContext[Any, Any]

SERVICE = api_pb2.DESCRIPTOR.services_by_name["RayServeAPIService"].full_name


class RayServeApi(api_pb2_grpc.RayServeAPIServiceServicer):
    """Answers as Ray Serve's gRPC proxy does.

    Args:
        is_draining: whether the ingress takes no new calls any more.
        applications: returns the names of all applications.
    """

    def __init__(
        self, is_draining: Callable[[], bool], applications: Callable[[], Collection[str]]
    ) -> None:
        self._is_draining = is_draining
        self._applications = applications

    async def Healthz(
        self, request: api_pb2.HealthzRequest, context: Context
    ) -> api_pb2.HealthzResponse:
        """Return "success", or UNAVAILABLE during a drain."""
        del request
        if self._is_draining():
            await context.abort(grpc.StatusCode.UNAVAILABLE, "the ingress is draining")
        return api_pb2.HealthzResponse(message="success")

    async def ListApplications(
        self, request: api_pb2.ListApplicationsRequest, context: Context
    ) -> api_pb2.ListApplicationsResponse:
        """Return the names of all applications, in order."""
        del request, context
        return api_pb2.ListApplicationsResponse(application_names=sorted(self._applications()))
