"""Builds the replica's server from a loaded class and its instance, and bounds its threads."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from pyserve.aio import Server, ServerSettings, Status
from pyserve.aio.internal import CLIENT_METADATA_BYTES
from pyserve.api.code import Code
from pyserve.api.ingress import ingress_of
from pyserve.config.deployment import MAX_RECEIVE_MESSAGE_BYTES_DEFAULT
from pyserve.config.environment import MESSAGE_BYTES_MAX
from pyserve.references import remote
from pyserve.replica import mesh_methods
from pyserve.replica.handlers import register, weights
from pyserve.replica.http import plain_handler
from pyserve.replica.http.documents import application_document, call_document
from pyserve.replica.loading import Loaded, LoadError, front_of, inference_doors
from pyserve.replica.plain.dispatcher import PlainDispatcher
from pyserve.replica.plain.methods import CALL, PlainMethod
from pyserve.replica.refusals import status_of_refusal

if TYPE_CHECKING:
    from pyserve.aio import HttpHandler
    from pyserve.bridge import CallStarter
    from pyserve.config import DeploymentOptions, MeshSettings
    from pyserve.config.ingress import IngressSettings
    from pyserve.references import References
    from pyserve.replica.inference import InferenceDoors
    from pyserve.replica.phases import Constructed


# What ingresses and handles may add to the head of a call; the native server gives the connections
# of its own doors as much (``INNER_HEADERS_BYTES``).
_OWN_HEADERS_BYTES = 16 * 1024
_UINT32_MAX = 2**32 - 1
# Of the methods that other processes of the mesh call.
_OWN_WEIGHTS = {**remote.WEIGHTS, **mesh_methods.WEIGHTS}


def server_of(
    made: Constructed,
    settings: MeshSettings,
    *,
    application: str,
    deployment: str,
    replica_id: str,
    token: bytes,
    development: bool,
    references: References | None,
    around_starts: Callable[[CallStarter], CallStarter] | None = None,
) -> Server:
    """Return the server of what was brought up; see ``make_server``.

    Raises:
        LoadError: It cannot be served with its options.
    """
    web = made.application
    try:
        return make_server(
            made.loaded,
            made.instance,
            application=application,
            deployment=deployment,
            replica_id=replica_id,
            token=token,
            development=development,
            limits=settings.ingress,
            references=references,
            http=None if web is None else web.handle,
            describe=None if web is None else partial(application_document, web.inner, deployment),
            front=front_of(settings.http_middlewares),
            around_starts=around_starts,
            maps_shared_memory=settings.node.shared_memory_bytes > 0,
        )
    except ValueError as error:
        raise LoadError(
            f"the options of {deployment!r} cannot be served: {error}",
            traceback.format_exc(),
            user_code=True,
        ) from error


def make_server(
    loaded: Loaded,
    instance: object,
    *,
    application: str,
    deployment: str,
    replica_id: str,
    token: bytes,
    development: bool,
    limits: IngressSettings,
    references: References | None = None,
    http: HttpHandler | None = None,
    describe: Callable[[], Mapping[str, Any]] | None = None,
    front: Callable[[HttpHandler], HttpHandler] | None = None,
    around_starts: Callable[[CallStarter], CallStarter] | None = None,
    maps_shared_memory: bool = True,
) -> Server:
    """Return a server with all methods registered, which does not listen yet.

    Args:
        loaded: The class and its options.
        instance: The constructed object, or the deployed function.
        application: Its application.
        deployment: Its deployment; with the application's name it is the service's.
        replica_id: What a router's handshake must find.
        token: The mesh token. A caller without it would bypass the ingress's access rules.
        development: Whether the texts of unexpected exceptions may reach clients.
        limits: Of the ingress; what of them is about connections holds at ports for strangers.
        references: Holds large results for handles.
        http: The ASGI application; ``None``: ``__call__`` answers plain HTTP, if there is one.
        describe: Makes the document of that application.
        front: Wraps ``__call__``, for example in middlewares; ``None``: nothing does.
        around_starts: See ``ServerSettings``.
        maps_shared_memory: See ``ServerSettings``.

    Raises:
        ValueError: An interceptor is not one, or a method has invalid marks.
    """
    plain = PlainDispatcher(
        instance,
        application,
        deployment,
        rpcs=loaded.methods,
        services=loaded.services,
        batched=loaded.batched,
        references=references,
        development=development,
    )
    call = plain.methods.get(CALL)
    http = http or _plain_http(call, front)
    doors = inference_doors(loaded, plain.methods, development=development)
    server = Server(
        interceptors=cast("Any", loaded.interceptors),  # Server checks their type.
        options=_channel_arguments(loaded.options, limits),
        maximum_concurrent_rpcs=loaded.options.ongoing_requests_limit(),
        settings=ServerSettings(
            replica_id=replica_id,
            token=token,
            call_token=token,
            **_of_methods(loaded, plain, development),
            application=application,
            deployment=deployment,
            http=http if doors is None else doors.in_front_of(http),
            around_starts=around_starts,
            maps_shared_memory=maps_shared_memory,
        ),
    )
    register(instance, loaded.services, loaded.methods, server.add_registered_method_handlers)
    _register_more(server, plain, doors, references, describe or _describing(call, deployment))
    return server


def _describing(
    call: PlainMethod | None, deployment: str
) -> Callable[[], Mapping[str, Any]] | None:
    return None if call is None else partial(call_document, call, deployment)


def _register_more(
    server: Server,
    plain: PlainDispatcher,
    doors: InferenceDoors | None,
    references: References | None,
    describe: Callable[[], Mapping[str, Any]] | None,
) -> None:
    """Add plain calls, and what clients of inference and other processes of the mesh ask for."""
    plain.register(server)
    if doors is not None:
        server.add_registered_method_handlers(doors.service, doors.handlers())
    if describe is not None:
        server.add_registered_method_handlers(
            mesh_methods.DESCRIBING, mesh_methods.describing_handlers(describe)
        )
    server.add_registered_method_handlers(mesh_methods.DELAYS, mesh_methods.delays_handlers())
    if references is not None:
        server.add_registered_method_handlers(remote.SERVICE, remote.handlers(references))


def _of_methods(loaded: Loaded, plain: PlainDispatcher, development: bool) -> dict[str, Any]:
    """Return the server settings for the methods of services and for plain calls."""
    call = plain.methods.get(CALL)
    return {
        "development": development,
        "outlives_exits": True,  # One request must not end the replica for all others.
        "default_threads": HANDLER_THREADS_MAX,
        "weights": {**weights(loaded.methods), **plain.weights(), **_OWN_WEIGHTS},
        "http_weight": 1 if call is None else call.options.weight,
        "max_receive_message_bytes": _receive_limits(loaded),
        "codecs": plain.codecs(),
        "framed": plain.framed_handlers(),
        "status_of": _status_of(plain, development),
    }


def _status_of(
    plain: PlainDispatcher, development: bool
) -> Callable[[BaseException, Any], Status | None]:
    def status_of(error: BaseException, context: Any) -> Status | None:
        return (
            plain.status_of(error, context)
            or Status.of_abort(error)
            or status_of_refusal(error, context, development=development)
        )

    return status_of


def _plain_http(
    call: PlainMethod | None, front: Callable[[HttpHandler], HttpHandler] | None
) -> HttpHandler | None:
    if call is None:
        return None
    handler = plain_handler(call)
    return handler if front is None else front(handler)


def _receive_limits(loaded: Loaded) -> dict[str, int]:
    """Return the limits of methods that were found by their names: none unless one was set.

    Calls of their class by handles and plain HTTP have none either, and Ray Serve's have none.
    """
    if loaded.options.max_receive_message_bytes != MAX_RECEIVE_MESSAGE_BYTES_DEFAULT:
        return {}
    found = loaded.methods.items()
    return {path: MESSAGE_BYTES_MAX for path, method in found if method.by_name}


def _channel_arguments(
    options: DeploymentOptions, limits: IngressSettings
) -> list[tuple[str, int | str]]:
    sent = options.max_send_message_bytes
    return [
        ("grpc.max_receive_message_length", options.max_receive_message_bytes),
        ("grpc.max_send_message_length", -1 if sent is None else sent),
        # The ingress has checked what the client sent.
        ("grpc.max_metadata_size", min(limits.header_bytes_max + _OWN_HEADERS_BYTES, _UINT32_MAX)),
        # Given in any case: the limit above is none of clients.
        (
            "pyserve.client_metadata_bytes",
            options.max_client_metadata_bytes or CLIENT_METADATA_BYTES,
        ),
        ("pyserve.idle_connection_memory_mb", limits.idle_bytes_max >> 20),
        ("pyserve.trusted_proxies", ",".join(limits.trusted_proxies)),
        ("pyserve.proxy_protocol", "v2" if limits.proxy_protocol else "off"),
    ]


# Threads are made when calls come and none is idle. The gate admits max_ongoing_requests calls, so
# there are never more threads than that, also when the limit changes; this bounds them for limits
# meant for coroutines (arbitrary).
HANDLER_THREADS_MAX = 1000


class EndpointThreads:
    """The threads in which FastAPI and Starlette run ``def`` endpoints: anyio's default limiter.

    As many as the replica takes requests, and no fewer than anyio gives by itself, for background
    tasks, files and dependencies take threads too. An application that sets the limiter, in its
    constructor or its lifespan for example, keeps what it has set.

    Made in a task of the replica's loop, and used on that loop.

    Args:
        limit: How many requests the replica takes at once.
    """

    def __init__(self, limit: int) -> None:
        # Here, because it takes time that replicas without web applications need not wait for.
        from anyio.to_thread import current_default_thread_limiter

        self._limiter = current_default_thread_limiter()
        self._fewest = self._given = self._limiter.total_tokens
        self.follow(limit)

    def follow(self, limit: int) -> None:
        """Follow another limit of requests; those that wait for a thread get it now."""
        if self._limiter.total_tokens != self._given:
            return  # The application has chosen by itself.
        self._given = max(self._fewest, min(limit, HANDLER_THREADS_MAX))
        self._limiter.total_tokens = self._given


def threads_for(target: Code, limit: int) -> EndpointThreads | None:
    """Bound anyio's threads if they are used: before the constructor, which may know better.

    Args:
        target: The class or function that the replica runs.
        limit: How many requests it takes at once.
    """
    # Streams of plain handlers use them too.
    if ingress_of(target) is None and "anyio" not in sys.modules:
        return None
    return EndpointThreads(limit)
