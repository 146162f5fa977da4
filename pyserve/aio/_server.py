"""The server: registration, ports, and the states from ready to stopped."""

from __future__ import annotations

import asyncio
import enum
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from functools import partial
from typing import Any

import grpc

from pyserve.aio._context import ServicerContext
from pyserve.aio._credentials import ServerCredentials, server_tls
from pyserve.aio._dispatch import Resolver, starter_at, starter_of_resolved
from pyserve.aio._handlers import CallKit, Method, RpcMethodHandler, make_method, make_spawn
from pyserve.aio._http import HttpCall
from pyserve.aio._http_tasks import http_starter
from pyserve.aio._loaded import describing_files
from pyserve.aio._options import ChannelArguments, ServerSettings, read_server_options
from pyserve.aio._threads import thread_kit
from pyserve.aio._watched import OnEnd, make_on_logged_call
from pyserve.bridge import CallStarter, LoopEndpoint, keep_from_forks, running_endpoint, rust
from pyserve.observe.traces.process import PROCESS_TRACING

_LOGGER = logging.getLogger(__name__)

# How often stop() looks whether the I/O threads have sent the last answers. They report no such
# event: Python has nothing to do then. Arbitrary, below what a person notices.
_SENT_CHECK_S = 0.002
# How long stop() waits for the connections to go; a peer that reads nothing can delay them.
_CLOSE_TIMEOUT_S = 1.0


_UNLIMITED = -1
# A default option of ``server()``, which its caller may override.
_DOORS_OPEN = ("pyserve.doors", 1)


class _State(enum.Enum):
    READY = "ready"
    RUNNING = "running"
    STOPPING = "stopping"
    STOPPED = "stopped"


class Server(grpc.aio.Server):
    """A gRPC server with the interface of ``grpc.aio.Server``, served by native threads.

    Made by ``server()``. Belongs to the loop that is running when it is made.
    """

    def __init__(
        self,
        *,
        thread_pool: Executor | None = None,
        handlers: Sequence[grpc.GenericRpcHandler] = (),
        interceptors: Sequence[grpc.aio.ServerInterceptor] = (),
        options: ChannelArguments = (),
        maximum_concurrent_rpcs: int | None = None,
        compression: grpc.Compression | None = None,
        settings: ServerSettings | None = None,
    ) -> None:
        self._state = _State.STOPPED  # until everything below has worked
        _check_interceptors(interceptors)
        if maximum_concurrent_rpcs is not None and maximum_concurrent_rpcs <= 0:
            raise ValueError("maximum_concurrent_rpcs should be a positive integer")
        self._settings = settings or ServerSettings()
        self._options = read_server_options(options, compression)
        self._maximum_concurrent_rpcs = maximum_concurrent_rpcs
        self._interceptors = tuple(interceptors)
        self._resolver = Resolver(self._settings.framed)
        self._resolver.generic.extend(handlers)
        self._thread_pool = thread_pool
        self._own_pool: ThreadPoolExecutor | None = None
        self._endpoint, self._parent = _claim_endpoint()
        self._loop = self._endpoint.loop
        self._native = self._make_native()
        self._starters: list[CallStarter] = []
        self._on_call: CallStarter | None = None
        self._served_spans: rust.ServedSpans | None = None
        self._terminated: asyncio.Future[None] = self._loop.create_future()
        self._stop_at: float | None = None
        self._hurry = asyncio.Event()
        self._stopper: asyncio.Task[None] | None = None
        self._endpoint.add_close_callback(self._end)
        self._state = _State.READY

    # --- registration -------------------------------------------------------------------

    def add_generic_rpc_handlers(
        self, generic_rpc_handlers: Iterable[grpc.GenericRpcHandler]
    ) -> None:
        """Add handlers that are asked in order; before ``start`` only."""
        if self._may_register():
            self._resolver.generic.extend(generic_rpc_handlers)

    def add_registered_method_handlers(
        self, service_name: str, method_handlers: Mapping[str, RpcMethodHandler]
    ) -> None:
        """Add the methods of a service; they win over generic ones. Before ``start`` only."""
        if self._may_register():
            for name, handler in method_handlers.items():
                self._resolver.registered[f"/{service_name}/{name}"] = handler

    def _may_register(self) -> bool:
        if self._state is not _State.READY:
            _LOGGER.warning("handlers cannot be added once the server has started; ignored")
            return False
        return True

    # --- ports --------------------------------------------------------------------------

    def add_insecure_port(self, address: str) -> int:
        """Listen at ``host:port`` (port 0 picks one) or ``unix:path``; before ``start`` only.

        Returns:
            The port; 1 for a Unix socket.

        Raises:
            RuntimeError: The address cannot be bound.
        """
        return self._listen(address, None)

    def add_secure_port(
        self, address: str, server_credentials: ServerCredentials | grpc.ServerCredentials
    ) -> int:
        """Listen with TLS; see ``add_insecure_port``.

        Raises:
            RuntimeError: The address cannot be bound.
            TypeError: The credentials do not come from ``pyserve.aio``.
            ValueError: The certificates or keys cannot be read.
        """
        return self._listen(address, server_tls(server_credentials, http1=self._options.doors))

    def _listen(self, address: str, tls: rust.ServerTls | None) -> int:
        if self._state is not _State.READY:
            raise RuntimeError(f"ports must be added before the server starts: {address!r}")
        try:
            if address.startswith("unix:"):
                path = address.removeprefix("unix:")
                self._native.listen_unix(path.removeprefix("//"))
                return 1
            host = _with_port(address)
            options = self._options
            # Ports of a replica are for routers, which speak gRPC and nothing else.
            in_mesh = bool(self._settings.token) and not options.doors
            return self._native.listen_tcp(
                host, tls, options.reuse_port, doors=options.doors, in_mesh=in_mesh
            )
        except OSError as error:
            raise RuntimeError(
                f"Failed to bind to address {address}: {error}; choose another port (0 picks a "
                "free one) or stop the program that holds it"
            ) from error

    def _describe(self) -> None:
        services = {path.split("/")[1] for path in self._resolver.static_handlers()}
        for problem in self._native.register_descriptors(describing_files(sorted(services))):
            _LOGGER.warning("clients of other protocols than gRPC lack something: %s", problem)

    # --- life ---------------------------------------------------------------------------

    async def start(self) -> None:
        """Serve. A second call while running does nothing.

        Raises:
            grpc.aio.UsageError: The server was stopped before.
        """
        if self._state is _State.RUNNING:
            return
        if self._state is not _State.READY:
            raise grpc.aio.UsageError("Server not in ready state")
        self._register_methods()
        # A replica's ports for balancers outside of the mesh are bound at the native server.
        if self._options.doors or self._settings.replica_id:
            self._describe()
        self._native.start()
        keep_from_forks(self._loop)
        self._state = _State.RUNNING

    async def stop(self, grace: float | None) -> None:
        """Refuse new calls, wait up to ``grace`` seconds for the others, then end them.

        Returns when every handler has ended. May be called again, also meanwhile: the earliest
        end counts. ``None`` ends calls now.
        """
        if self._state in (_State.READY, _State.STOPPED):
            return
        end = self._loop.time() + (grace or 0.0)
        if self._stop_at is None or end < self._stop_at:
            self._stop_at = end
            self._hurry.set()
        if self._state is _State.RUNNING:
            self._state = _State.STOPPING
            self._native.drain()
            self._stopper = self._loop.create_task(self._stop(), name="pyserve server stop")
        await asyncio.shield(self._terminated)

    async def wait_for_termination(self, timeout: float | None = None) -> bool:
        """Wait until the server has stopped; ``True`` when ``timeout`` seconds passed first."""
        done, _ = await asyncio.wait((self._terminated,), timeout=timeout)
        return not done

    def set_maximum_concurrent_rpcs(self, limit: int | None) -> None:
        """Change the limit of concurrent calls while serving; ``None`` lifts it."""
        self._native.set_max_concurrent_calls(-1 if limit is None else limit)

    def set_receive_limit(self, path: str, size_bytes: int) -> None:
        """Change how long a message of a registered method may be, from the next call on."""
        self._register(path, make_method(path, self._resolver.registered[path]), size_bytes)

    def tell_ends(self, on_end: OnEnd | None) -> None:
        """Have ``on_end`` called with each call that ends, of those that begin from now on.

        Args:
            on_end: Called on the thread that ends the call, and must not raise; ``None``: nobody.
        """
        plain = self._on_call
        if plain is not None and self._endpoint.on_call is not None:
            logged = on_end and make_on_logged_call(plain, self._endpoint.receivers, on_end)
            self._endpoint.on_call = logged or plain

    @property
    def native(self) -> rust.Server:
        """The native server, for the replica's load reports."""
        return self._native

    @property
    def takes_http(self) -> bool:
        """Whether plain HTTP requests are answered too."""
        return self._settings.http is not None

    async def _stop(self) -> None:
        while self._busy() and not self._overdue():
            await self._progress()
        self._native.stop()
        for context in self._contexts():
            if isinstance(context, HttpCall):
                context.stop()
        # The remaining handlers have received CANCEL; ``def`` handlers run to their end.
        while self._contexts() or self._endpoint.process():
            await asyncio.wait([self._next_end()])
        await self._connections_closed()
        self._end()

    async def _connections_closed(self) -> None:
        # A client that still saw its old connection would lose its next call there.
        end = self._loop.time() + _CLOSE_TIMEOUT_S
        while self._native.stats().get("connections", 0) and self._loop.time() < end:  # noqa: ASYNC110
            await asyncio.sleep(_SENT_CHECK_S)

    def _busy(self) -> bool:
        while self._endpoint.process():
            pass  # calls that were accepted before the drain still are in the queue
        return bool(self._contexts()) or not self._native.finish()

    def _overdue(self) -> bool:
        assert self._stop_at is not None
        return self._loop.time() >= self._stop_at

    async def _progress(self) -> None:
        """Wait until a call ends, the grace is over, or somebody shortens it."""
        assert self._stop_at is not None
        timeout_s = max(0.0, self._stop_at - self._loop.time())
        self._hurry.clear()
        hurry = self._loop.create_task(self._hurry.wait())
        waiters: list[asyncio.Future[Any]] = [hurry]
        if self._contexts():
            waiters.append(self._next_end())
        else:
            timeout_s = min(timeout_s, _SENT_CHECK_S)
        await asyncio.wait(waiters, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
        hurry.cancel()

    def _contexts(self) -> list[ServicerContext | HttpCall]:
        return [
            receiver
            for receiver in self._endpoint.receivers.values()
            if isinstance(receiver, ServicerContext | HttpCall)
            and receiver.kit.owner is self._native
        ]

    def _next_end(self) -> asyncio.Future[None]:
        future: asyncio.Future[None] = self._loop.create_future()

        def on_done(_context: object) -> None:
            if not future.done():
                future.set_result(None)

        for context in self._contexts():
            context.add_done_callback(on_done)
        if not self._contexts():
            future.set_result(None)
        return future

    def _end(self) -> None:
        """Close everything; also the way out when the loop closes under a running server."""
        if self._state is _State.STOPPED:
            return
        self._state = _State.STOPPED
        self._native.stop()
        self._endpoint.remove_close_callback(self._end)
        self._endpoint.on_call = None
        if (spans := PROCESS_TRACING.spans) is not None and self._served_spans is not None:
            spans.sources.remove(self._served_spans)
        if self._parent is not None:
            self._parent.remove_close_callback(self._endpoint.close)
            self._endpoint.close()
        if self._own_pool is not None:
            self._own_pool.shutdown(wait=False)
        if not self._terminated.done() and not self._loop.is_closed():
            self._terminated.set_result(None)

    def __del__(self) -> None:
        if getattr(self, "_state", _State.STOPPED) is not _State.STOPPED:
            self._native.stop()

    # --- making -------------------------------------------------------------------------

    def _make_native(self) -> rust.Server:
        options = self._options
        limit = self._maximum_concurrent_rpcs
        return rust.Server(
            self._endpoint.raw,
            max_receive_message_bytes=options.max_receive_message_bytes,
            max_send_message_bytes=options.max_send_message_bytes,
            max_metadata_bytes=options.max_metadata_bytes,
            max_concurrent_calls=-1 if limit is None else limit,
            max_concurrent_streams=options.max_concurrent_streams,
            idle_bytes_max=options.idle_bytes_max,
            trusted_proxies=options.trusted_proxies,
            proxy_protocol=options.proxy_protocol,
            max_idle_streams=self._settings.max_idle_streams,
            default_compression=options.default_compression,
            enabled_compressions=options.compressions(),
            keepalive_time_s=options.keepalive_time_s,
            keepalive_timeout_s=options.keepalive_timeout_s,
            max_connection_age_s=options.max_connection_age_s,
            max_connection_grace_s=options.max_connection_grace_s,
            max_connection_idle_s=options.max_connection_idle_s,
            replica_id=self._settings.replica_id,
            token=self._settings.token,
            call_token=self._settings.call_token,
            maps_shared_memory=self._settings.maps_shared_memory,
        )

    def _register_methods(self) -> None:
        kit = CallKit(
            owner=self._native,
            loop=self._loop,
            receivers=self._endpoint.receivers,
            at_turn_end=self._endpoint.at_turn_end,
            flush=self._endpoint.schedule_flush,
            spawn=make_spawn(self._loop),
            executor=self._executor,
            default_compression=self._options.default_compression,
            settings=self._settings,
            client_metadata_bytes=self._options.client_metadata_bytes,
        )
        kits = kit, thread_kit(kit, self._endpoint.raw.flush)
        for path, handler in self._resolver.static_handlers().items():
            method = make_method(path, handler)
            receive_limit = self._settings.max_receive_message_bytes.get(path)
            number = self._register(path, method, receive_limit)
            self._add_starter(number, starter_at(method, self._resolver, self._interceptors, kits))
        settings = self._settings
        if settings.http is not None:
            number = self._native.register_http(weight=settings.http_weight)
            self._add_starter(number, http_starter(settings.http, kit))
        if settings.on_turned_away is not None:
            number = self._native.register_turned_away()
            self._add_starter(number, _make_turn_away(settings.on_turned_away))
        # The number of paths that nobody registered is -1: the last of the list.
        self._starters.append(starter_of_resolved(None, self._resolver, self._interceptors, kits))
        on_call = _make_on_call(self._starters)
        if settings.around_starts is not None:
            on_call = settings.around_starts(on_call)
        self._endpoint.on_call = self._on_call = on_call
        if (spans := PROCESS_TRACING.spans) is not None:
            self._served_spans = rust.ServedSpans()
            spans.sources.add(self._served_spans)
            self._endpoint.tell_traced(partial(spans.serve, self._served_spans))

    def _add_starter(self, number: int, starter: CallStarter) -> None:
        if number != len(self._starters):
            raise AssertionError(f"numbers of methods must count up, one got {number}")
        self._starters.append(starter)

    def _register(self, path: str, method: Method, receive_limit: int | None) -> int:
        kinds = method.request_streaming, method.response_streaming
        codecs = self._settings.codecs.get(path)
        return self._native.register(
            path,
            *kinds,
            self._settings.weights.get(path, 1),
            subtypes=codecs,
            max_message_bytes=None if codecs is None else _UNLIMITED,
            max_receive_message_bytes=receive_limit,
        )

    def _executor(self) -> Executor:
        if self._thread_pool is not None:
            return self._thread_pool
        if self._own_pool is None:
            self._own_pool = ThreadPoolExecutor(
                self._settings.default_threads, thread_name_prefix="pyserve-handler"
            )
        return self._own_pool


def server(
    migration_thread_pool: Executor | None = None,
    handlers: Sequence[grpc.GenericRpcHandler] | None = None,
    interceptors: Sequence[grpc.aio.ServerInterceptor] | None = None,
    options: ChannelArguments | None = None,
    maximum_concurrent_rpcs: int | None = None,
    compression: grpc.Compression | None = None,
) -> Server:
    """Make a server, as ``grpc.aio.server`` does.

    Args:
        migration_thread_pool: Runs ``def`` handlers; without it the server makes a pool of 32.
        handlers: Generic handlers to begin with.
        interceptors: Asked in order for the handler of every call.
        options: grpc channel arguments; those without a meaning here are ignored. With
            ``("pyserve.doors", 0)`` ports speak gRPC only; else also Connect, gRPC-Web and JSON,
            over HTTP/1.1 too. Idle connections may keep
            ``("pyserve.idle_connection_memory_mb", 48)`` MiB, estimated; those that have rested
            longest are closed beyond it. ``("pyserve.trusted_proxies", "10.0.0.0/8")`` names the
            networks of proxies whose word on clients' addresses is taken, and
            ``("pyserve.proxy_protocol", "v2")`` has them begin with a PROXY header.
        maximum_concurrent_rpcs: Calls above it get RESOURCE_EXHAUSTED; ``None``: no limit.
        compression: Of all responses whose handler does not choose.

    Raises:
        ValueError: An argument cannot be used; the text says which.
        RuntimeError: No loop is running, or the process is a fork.
    """
    return Server(
        thread_pool=migration_thread_pool,
        handlers=handlers or (),
        interceptors=interceptors or (),
        options=(_DOORS_OPEN, *(options or ())),
        maximum_concurrent_rpcs=maximum_concurrent_rpcs,
        compression=compression,
    )


def _make_on_call(starters: list[CallStarter]) -> CallStarter:
    def on_call(token: int, call: rust.ServerCall, message: bytes | None) -> None:
        starters[call.method](token, call, message)

    return on_call


def _make_turn_away(tell: Callable[[str, str], None]) -> CallStarter:
    def on_call(_token: int, call: rust.ServerCall, _message: bytes | None) -> None:
        tell(call.path, call.peer)

    return on_call


def _claim_endpoint() -> tuple[LoopEndpoint, LoopEndpoint | None]:
    """Return the loop's endpoint, or a new one and the loop's for a loop's second server.

    A call names its method, not its server; so an endpoint takes the calls of one server.
    """
    endpoint = running_endpoint()
    if endpoint.on_call is None:
        endpoint.on_call = _refuse
        return endpoint, None
    own = LoopEndpoint(endpoint.loop)
    endpoint.add_close_callback(own.close)
    return own, endpoint


def _refuse(_token: int, call: rust.ServerCall, _message: bytes | None) -> None:
    call.finish(grpc.StatusCode.UNAVAILABLE.value[0], "the server has not started", (), None)


def _with_port(address: str) -> str:
    """Return ``address`` with a port; grpc allows to leave it out, which means 0."""
    address = address.removeprefix("dns:///").removeprefix("ipv4:").removeprefix("ipv6:")
    if address.startswith("[") and address.endswith("]"):
        return f"{address}:0"
    return address if ":" in address else f"{address}:0"


def _check_interceptors(interceptors: Sequence[Any]) -> None:
    invalid = [one for one in interceptors if not isinstance(one, grpc.aio.ServerInterceptor)]
    if invalid:
        raise ValueError(
            f"Interceptor must be ServerInterceptor, the following are invalid: {invalid}"
        )
