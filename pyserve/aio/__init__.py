"""A gRPC server and channel with grpc.aio's public interface, served by native threads.

An existing grpc.aio program changes its import and keeps working; the differences on purpose
are listed in docs/reference/aio-differences.md. Exceptions, status codes, metadata and the
base classes of interceptors are grpc's own, so handlers of them need no change.
"""

from grpc.aio import (
    EOF,
    AbortError,
    AioRpcError,
    BaseError,
    Call,
    ClientCallDetails,
    ClientInterceptor,
    InternalError,
    Metadata,
    RpcContext,
    ServerInterceptor,
    StreamStreamCall,
    StreamStreamClientInterceptor,
    StreamStreamMultiCallable,
    StreamUnaryCall,
    StreamUnaryClientInterceptor,
    StreamUnaryMultiCallable,
    UnaryStreamCall,
    UnaryStreamClientInterceptor,
    UnaryStreamMultiCallable,
    UnaryUnaryCall,
    UnaryUnaryClientInterceptor,
    UnaryUnaryMultiCallable,
    UsageError,
)

from pyserve.aio._channel import Channel, insecure_channel, secure_channel
from pyserve.aio._client_interceptors import InterceptedUnaryUnaryCall
from pyserve.aio._context import ServicerContext
from pyserve.aio._credentials import ServerCredentials, ssl_server_credentials
from pyserve.aio._handlers import payload
from pyserve.aio._http import HttpCall, HttpFields, HttpHandler, HttpHeaders
from pyserve.aio._http_errors import ClientDisconnected
from pyserve.aio._http_tasks import HttpFunction
from pyserve.aio._options import ServerSettings, Status
from pyserve.aio._server import Server, server
from pyserve.aio._watched import EndedCall

__all__ = [
    "EOF",
    "AbortError",
    "AioRpcError",
    "BaseError",
    "Call",
    "Channel",
    "ClientCallDetails",
    "ClientDisconnected",
    "ClientInterceptor",
    "EndedCall",
    "HttpCall",
    "HttpFields",
    "HttpFunction",
    "HttpHandler",
    "HttpHeaders",
    "InterceptedUnaryUnaryCall",
    "InternalError",
    "Metadata",
    "RpcContext",
    "Server",
    "ServerCredentials",
    "ServerInterceptor",
    "ServerSettings",
    "ServicerContext",
    "Status",
    "StreamStreamCall",
    "StreamStreamClientInterceptor",
    "StreamStreamMultiCallable",
    "StreamUnaryCall",
    "StreamUnaryClientInterceptor",
    "StreamUnaryMultiCallable",
    "UnaryStreamCall",
    "UnaryStreamClientInterceptor",
    "UnaryStreamMultiCallable",
    "UnaryUnaryCall",
    "UnaryUnaryClientInterceptor",
    "UnaryUnaryMultiCallable",
    "UsageError",
    "insecure_channel",
    "payload",
    "secure_channel",
    "server",
    "ssl_server_credentials",
]
