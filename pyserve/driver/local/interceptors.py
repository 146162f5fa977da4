"""Interceptors of deployments that share one server, each for the services of its own."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import grpc

Continuation = Callable[
    [grpc.HandlerCallDetails], Awaitable["grpc.RpcMethodHandler[Any, Any] | None"]
]


class OfDeployments(grpc.aio.ServerInterceptor):
    """Asks the interceptors of the deployment whose service is called, first one outermost.

    Args:
        chains: By full name of the service.
    """

    def __init__(self, chains: Mapping[str, Sequence[Any]]) -> None:
        self._chains = chains

    async def intercept_service(
        self, continuation: Continuation, handler_call_details: grpc.HandlerCallDetails
    ) -> Any:
        """Return the handler that the chain of the called service comes to."""
        _, service, _ = handler_call_details.method.split("/", 2)
        for interceptor in reversed(self._chains.get(service, ())):
            continuation = _behind(interceptor, continuation)
        return await continuation(handler_call_details)


def _behind(interceptor: Any, continuation: Continuation) -> Continuation:
    async def ask(details: grpc.HandlerCallDetails) -> Any:
        return await interceptor.intercept_service(continuation, details)

    return ask
