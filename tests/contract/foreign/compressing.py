"""A server interceptor that compresses answers for calls that ask for it in their metadata."""

from collections.abc import Awaitable, Callable
from typing import Any

import grpc
import grpc.aio

COMPRESS_KEY = "test-compress"


class CompressOnDemand(grpc.aio.ServerInterceptor):
    """Sets gzip on unary calls that carry ``COMPRESS_KEY``."""

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Any]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Any:
        """Wrap the handler where the call asks for it."""
        handler = await continuation(handler_call_details)
        keys = [key for key, _ in handler_call_details.invocation_metadata or ()]
        if handler is None or handler.unary_unary is None or COMPRESS_KEY not in keys:
            return handler

        async def compressed(request: Any, context: grpc.aio.ServicerContext[Any, Any]) -> Any:
            context.set_compression(grpc.Compression.Gzip)
            await context.send_initial_metadata(())  # grpc.aio says the algorithm only here.
            return await handler.unary_unary(request, context)

        return grpc.unary_unary_rpc_method_handler(
            compressed, handler.request_deserializer, handler.response_serializer
        )
