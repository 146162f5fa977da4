"""Serves an application of this process on a port, without an ingress and a mesh.

For breakpoints and tests. One server on the loop of the application answers the services of all
its deployments, reflection and health, and the plain HTTP of the first one; calls between
deployments go the way of local testing mode.
"""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_health.v1.health import aio as health
from grpc_reflection.v1alpha import reflection_pb2

from pyserve.aio import Server, ServerSettings, Status
from pyserve.aio._credentials import LiveServerCredentials
from pyserve.aio._handlers import is_async_generator_function, is_coroutine_function
from pyserve.api.context import ReplicaContext, enter_local_replica
from pyserve.config import read_settings
from pyserve.config.tls import SecuritySettings, TlsFiles
from pyserve.errors import DeploymentFailed, UsageError
from pyserve.gateway import IngressSecurity
from pyserve.gateway.builtin import HEALTH, REFLECTION
from pyserve.gateway.descriptors import reflection_servicer
from pyserve.replica.handlers import register, weights
from pyserve.replica.http import plain_handler
from pyserve.replica.loading import (
    LoadError,
    front_of,
    start_application,
    stop_application,
)
from pyserve.replica.plain.methods import CALL
from pyserve.replica.refusals import status_of_refusal
from pyserve.replica.servicers import file_descriptors

if TYPE_CHECKING:
    from pyserve.aio import HttpCall, HttpHandler
    from pyserve.driver.local.mesh import LocalApplication
    from pyserve.driver.local.replica import LocalReplica
    from pyserve.replica.asgi import AsgiApplication
    from pyserve.replica.loading import Loaded


# Interceptors of deployments that share one server, each for the services of its own.

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


# Plain HTTP of an application in this process: what its first deployment answers.


class Web:
    """Answers plain HTTP by a deployment's web application, or by its ``__call__``.

    Made by ``start``.

    Attributes:
        handler: For a server on the replica's loop; ``None``: the deployment answers no HTTP.
    """

    def __init__(
        self,
        replica: LocalReplica,
        application: AsgiApplication | None,
        others: Sequence[LocalReplica],
    ) -> None:
        self._replica = replica
        self._application = application
        self.handler = self._make_handler()
        for each in others:
            if each.inference is not None:
                self.handler = _within(each, each.inference.in_front_of(self.handler))

    @classmethod
    async def start(cls, replica: LocalReplica, replicas: Sequence[LocalReplica] = ()) -> Web:
        """Run the startup of the web application, if there is one.

        Args:
            replica: Of the first deployment.
            replicas: Of all, of which some may answer inference.

        Raises:
            DeploymentFailed: It failed, or the middlewares cannot be made.
        """
        middlewares = read_settings().http_middlewares
        try:
            application = await replica.within(
                start_application(replica.loaded.target, middlewares)
            )
            return cls(replica, application, replicas)
        except LoadError as error:
            name = replica.context.deployment
            raise DeploymentFailed(name, error.summary, error.traceback) from error

    def drain(self) -> None:
        """Ask the clients of WebSockets to go."""
        if self._application is not None:
            self._application.drain()

    async def close(self) -> None:
        """Run the shutdown of the web application."""
        if self._application is not None:
            await self._replica.within(stop_application(self._application))

    def _make_handler(self) -> HttpHandler | None:
        handler: HttpHandler
        if self._application is not None:
            handler = self._application.handle
        elif (call := self._replica.dispatcher.methods.get(CALL)) is not None:
            front = front_of(read_settings().http_middlewares)
            handler = plain_handler(call) if front is None else front(plain_handler(call))
        else:
            return None
        return _within(self._replica, handler)


def _within(replica: LocalReplica, handler: HttpHandler) -> HttpHandler:
    """Return a handler whose code is that of a replica."""

    async def handle(http: HttpCall) -> None:
        # Each request has a task of its own, so nothing has to be put back.
        enter_local_replica(replica.context)
        await handler(http)

    return handle


Handlers = Mapping[str, "grpc.RpcMethodHandler[Any, Any]"]
# As many `def` handlers run at once as asyncio's own pool allows at most.
_THREADS_MAX = 32


@dataclass(frozen=True)
class LocalServer:
    """A server that runs.

    Attributes:
        addresses: Where it listens.
        takes_http: It answers plain HTTP.
    """

    addresses: Sequence[str]
    takes_http: bool
    _server: Server
    _web: Web

    async def stop(self, grace_s: float) -> None:
        """Take nothing more, and let what is in flight end within ``grace_s``."""
        self._web.drain()
        await self._server.stop(grace_s)
        await self._web.close()


async def serve(
    application: LocalApplication,
    addresses: Sequence[str],
    credentials: grpc.ServerCredentials | None = None,
) -> LocalServer:
    """Start a server for the services and routes of the application's deployments; on their loop.

    Args:
        application: It has to run.
        addresses: ``host:port`` each; port 0 picks one.
        credentials: For TLS; ``None``: it speaks plainly.

    Raises:
        DeploymentFailed: The web application could not be started.
        UsageError: Two deployments answer one service, or an address cannot be used.
    """
    _check_services(tuple(application.replicas.values()))
    web = await Web.start(
        application.replicas[application.ingress], tuple(application.replicas.values())
    )
    try:
        server = await _make_server(application, web)
        listening = [_listen(server, address, credentials) for address in addresses]
        await server.start()
    except BaseException:
        await web.close()
        raise
    return LocalServer(listening, server.takes_http, server, web)


async def _make_server(application: LocalApplication, web: Web) -> Server:
    replicas = tuple(application.replicas.values())
    # Clients of gRPC name a model, of which nobody here finds the deployment.
    inferring = [each for each in replicas if each.inference is not None]
    infers = inferring[0] if len(inferring) == 1 else None
    settings = replace(
        _settings(replicas),
        http=web.handler,
        application=application.name,
        # Of several, each call has one of its own.
        deployment=application.ingress if len(replicas) == 1 else "",
    )
    chains = _interceptors(replicas)
    server = Server(
        interceptors=[OfDeployments(chains)] if chains else (),
        settings=settings,
        options=(("pyserve.doors", 1),),
    )
    for replica in replicas:
        scope = _Scope(server, replica.context)
        instance = replica.context.servable_object
        loaded = replica.loaded
        register(instance, loaded.services, loaded.methods, scope.add_registered_method_handlers)
        replica.dispatcher.register(scope)  # type: ignore[arg-type]  # all that it uses
        if replica is infers:
            doors = replica.inference
            assert doors is not None, "it is the one that has them"
            scope.add_registered_method_handlers(doors.service, doors.handlers())
    _add_reflection(server, replicas)
    await _add_health(server, replicas)
    return server


def credentials_of(files: TlsFiles) -> grpc.ServerCredentials:
    """Read certificates, once; the server asks of clients what an ingress does.

    Raises:
        OptionError: They cannot be read or used.
    """
    tls = IngressSecurity(SecuritySettings(tls=files)).tls
    assert tls is not None, "it has files"
    return LiveServerCredentials(tls)


def _settings(replicas: Sequence[LocalReplica]) -> ServerSettings:
    dispatchers = [replica.dispatcher for replica in replicas]

    def status_of(error: BaseException, context: Any) -> Status | None:
        for dispatcher in dispatchers:
            if (status := dispatcher.status_of(error, context)) is not None:
                return status
        return Status.of_abort(error) or status_of_refusal(error, context, development=True)

    return ServerSettings(
        development=True,
        weights=_merged([*(weights(each.loaded.methods) for each in replicas)]),
        codecs=_merged([each.codecs() for each in dispatchers]),
        max_receive_message_bytes=_merged([_receive_limits(each.loaded) for each in replicas]),
        status_of=status_of,
        default_threads=_THREADS_MAX,
    )


def _receive_limits(loaded: Loaded) -> dict[str, int]:
    limit = loaded.options.max_receive_message_bytes
    return {f"/{each.name}/{name}": limit for each in loaded.services for name in each.methods}


def _interceptors(replicas: Sequence[LocalReplica]) -> dict[str, Sequence[object]]:
    return {
        service: replica.loaded.interceptors
        for replica in replicas
        if replica.loaded.interceptors
        for service in (
            *(each.name for each in replica.loaded.services),
            replica.dispatcher.service,
        )
    }


def _merged(parts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    return {path: value for part in parts for path, value in part.items()}


def _check_services(replicas: Sequence[LocalReplica]) -> None:
    for one, other in itertools.combinations(replicas, 2):
        names = {service.name for service in one.loaded.services}
        for service in other.loaded.services:
            if service.name in names:
                raise UsageError(
                    f"{one.context.deployment} and {other.context.deployment} both answer "
                    f"{service.name}; in one process a service can have one deployment only"
                )


def _listen(server: Server, address: str, credentials: grpc.ServerCredentials | None) -> str:
    host, _, _ = address.rpartition(":")
    try:
        if credentials is None:
            return f"{host}:{server.add_insecure_port(address)}"
        return f"{host}:{server.add_secure_port(address, credentials)}"
    except (OSError, RuntimeError) as error:  # RuntimeError is what grpc raises here.
        raise UsageError(
            f"cannot listen on {address}: {error}; give another --address, port 0 picks one"
        ) from error


def _add_reflection(server: Server, replicas: Sequence[LocalReplica]) -> None:
    sources = [
        file_descriptors([service.file for service in replica.loaded.services])
        for replica in replicas
    ]
    servicer = reflection_servicer(_service_names(replicas), sources)
    handler = grpc.stream_stream_rpc_method_handler(
        servicer.ServerReflectionInfo,
        request_deserializer=reflection_pb2.ServerReflectionRequest.FromString,
        response_serializer=reflection_pb2.ServerReflectionResponse.SerializeToString,
    )
    for name in REFLECTION:
        server.add_registered_method_handlers(name, {"ServerReflectionInfo": handler})


async def _add_health(server: Server, replicas: Sequence[LocalReplica]) -> None:
    servicer = health.HealthServicer()
    for name in ("", *_service_names(replicas)):
        await servicer.set(name, health_pb2.HealthCheckResponse.SERVING)
    health_pb2_grpc.add_HealthServicer_to_server(servicer, server)


def _service_names(replicas: Sequence[LocalReplica]) -> list[str]:
    own = [HEALTH, *REFLECTION]
    rpcs = [service.name for replica in replicas for service in replica.loaded.services]
    return sorted({*own, *rpcs, *(replica.dispatcher.service for replica in replicas)})


class _Scope:
    """A server as one deployment registers at it: its handlers know whose they are."""

    def __init__(self, server: Server, context: ReplicaContext) -> None:
        self._server = server
        self._context = context

    def add_registered_method_handlers(self, service: str, handlers: Handlers) -> None:
        """Register handlers that enter the replica's context before they run."""
        scoped = {name: self._scoped(handler) for name, handler in handlers.items()}
        self._server.add_registered_method_handlers(service, scoped)

    def add_generic_rpc_handlers(self, handlers: Sequence[grpc.GenericRpcHandler]) -> None:
        """Register handlers that answer without user code."""
        self._server.add_generic_rpc_handlers(handlers)

    def _scoped(self, handler: grpc.RpcMethodHandler[Any, Any]) -> grpc.RpcMethodHandler[Any, Any]:
        kind = (
            f"{'stream' if handler.request_streaming else 'unary'}_"
            f"{'stream' if handler.response_streaming else 'unary'}"
        )
        make: Any = getattr(grpc, f"{kind}_rpc_method_handler")
        made: grpc.RpcMethodHandler[Any, Any] = make(
            _in_context(getattr(handler, kind), self._context),
            request_deserializer=handler.request_deserializer,
            response_serializer=handler.response_serializer,
        )
        return made


def _in_context(behavior: Callable[[Any, Any], Any], context: ReplicaContext) -> Any:
    """Return a handler of the same kind, which is the replica's while it runs.

    Every call has a task or a thread's context of its own, so nothing has to be put back.
    """
    if is_async_generator_function(behavior):

        async def stream(request: object, call: object) -> Any:
            enter_local_replica(context)
            items = behavior(request, call)
            try:
                async for item in items:
                    yield item
            finally:
                await items.aclose()

        return stream
    if is_coroutine_function(behavior):  # Also one that only queues its calls, as a batched one.

        async def unary(request: object, call: object) -> object:
            enter_local_replica(context)
            return await behavior(request, call)

        return unary
    if inspect.isgeneratorfunction(behavior):

        def generator(request: object, call: object) -> Any:
            enter_local_replica(context)
            yield from behavior(request, call)

        return generator

    def plain(request: object, call: object) -> object:
        enter_local_replica(context)
        return behavior(request, call)

    return plain
