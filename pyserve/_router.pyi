"""The native half of pyserve: ring, server, client, ingress (crate ``router-py``).

Only ``pyserve.bridge``, ``pyserve.aio`` and ``pyserve.gateway`` import this module.
Metadata crosses as a tuple of ``(key, value)`` pairs; values of ``-bin`` keys are ``bytes``,
all others ``str``. Lengths are bytes, times are seconds.

A method that *queues a command* appends it to the endpoint's outbox and returns ``True`` when
the outbox was empty before: the caller then schedules one ``Endpoint.flush`` for this turn of
its loop. So one wake-up of an I/O thread serves every command of the turn.
"""

from collections.abc import Callable, Sequence
from os import PathLike
from typing import Protocol, TypedDict, final, type_check_only

from typing_extensions import Buffer

Metadata = tuple[tuple[str, str | bytes], ...]

# One message: a `bytes`, or a list of parts (anything with a contiguous buffer) that are sent one
# after the other without being joined. Parts of 64 KiB and more that nobody can write are borrowed
# until the call has ended; the others are copied.
Payload = bytes | list[Buffer]

# Names in any case. What is about one connection only (`connection`, `te`, ...) is left out.
HttpHeaders = Sequence[tuple[bytes, bytes]]
# The fields of ``HttpHead``, in this order: is_websocket, method, target's path as a text of
# Latin-1 (not decoded further), target's path, target's query, version, scheme, client, root_path,
# headers.
HttpFields = tuple[
    bool,
    str,
    str,
    bytes,
    bytes,
    str,
    str,
    tuple[str, int] | None,
    str,
    list[tuple[bytes, bytes]],
]

# Times, by the first bound (seconds) that is not below them; the last count is of those above all
# bounds. Counts are not cumulative over the bounds. The bounds are the same for all.
@type_check_only
class Histogram(TypedDict):
    buckets: list[float]
    counts: list[int]  # one more than there are bounds
    sum: float  # seconds

# What a router has measured of one deployment's calls, from its start. A second place of a slow
# call (a hedge) counts as a call.
@type_check_only
class DeploymentMeasures(TypedDict):
    codes: dict[int, int]  # calls by gRPC's number, as their callers were told
    http: dict[str, int]  # requests of plain HTTP by "1xx" to "5xx"
    left: int  # calls whose callers left
    # Calls that no replica took: queue_full, deadline, too_late, spent, removed, scaled_to_zero.
    refused: dict[str, int]
    request_bytes: int  # of bodies
    response_bytes: int
    # Parked calls that were sent, by what made room: completion, lease, time, members, models,
    # life (of a replica), settings.
    releases: dict[str, int]
    sent_by_tier: dict[str, int]  # attempts: node, zone, any
    sent: dict[str, int]  # attempts by replica
    failed: dict[str, int]  # those of them that failed by the replica's fault
    attempts: dict[str, Histogram]  # by replica: answered, broken off or late
    latency_ok: Histogram  # whole calls whose answers do not blame their replicas
    latency_failed: Histogram  # whole calls that failed, or that no replica took
    parked_wait: Histogram  # waits in the router, before and between attempts
    prediction_early: Histogram  # by how much answers came sooner than predicted
    prediction_late: Histogram

# What a server has measured of one method's calls.
@type_check_only
class MethodMeasures(TypedDict):
    codes: dict[int, int]  # by gRPC's number
    http: dict[str, int]  # by "1xx" to "5xx"
    left: int  # calls that ended without an answer
    latency: Histogram  # from the head of a call to the end of its answer
    request_bytes: int  # of messages
    response_bytes: int

# Kinds of events. Every event is a tuple ``(kind, token, subject, payload)``.
CALL: int  # server: (CALL, token, ServerCall, message or None if the request is a stream)
MESSAGE: int  # (MESSAGE, token, None, bytes): one message of a stream
HALF_CLOSE: int  # server: (HALF_CLOSE, token, None, None): the client sends no more
CANCEL: int  # server: (CANCEL, token, reason, None); reason is one of CANCEL_*
WRITABLE: int  # (WRITABLE, token, None, None): the call's send buffer has room again
INITIAL_METADATA: int  # client: (INITIAL_METADATA, token, None, None)
DONE: int  # client: (DONE, token, None, message or None); status is on the ClientCall
STATE: int  # client: (STATE, token, new connectivity state, None): see Channel.watch_state
CHOSEN: int  # client: (CHOSEN, token, Reservation, None): see Channel.choose
TRACED_CALL: int  # server: as CALL, of a call that is sampled; see Endpoint.tell_traced

CANCEL_CLIENT: int  # the peer reset the stream or its connection went away
CANCEL_DEADLINE: int  # the deadline passed; DEADLINE_EXCEEDED has been answered already
CANCEL_SHUTDOWN: int  # the server was stopped; UNAVAILABLE has been answered already

IDENTITY: int  # compression of one message
GZIP: int
DEFLATE: int

@final
class OpenFile:
    """A regular file that is open for reading, until it was sent; closed when it is freed."""

    @property
    def size_bytes(self) -> int:
        """When it was opened."""

    @property
    def modified_ns(self) -> int:
        """Nanoseconds since 1970."""

    def close(self) -> None:
        """Close it, unless an answer has taken it."""

def open_file(path: str | bytes | PathLike[str]) -> OpenFile:
    """Open a regular file; it may wait for a disk.

    Raises:
        OSError: There is none, it may not be read, or it is something other than a file.
    """

@final
class HttpHead:
    """The head of a plain HTTP request, as its client sent it."""

    @property
    def method(self) -> str: ...
    @property
    def target(self) -> bytes:
        """Path and query as they were sent, not decoded; an ingress's root path is in front."""

    @property
    def version(self) -> str:
        """``1.0``, ``1.1`` or ``2``, of the client's connection."""

    @property
    def scheme(self) -> str:
        """``http`` or ``https``; for WebSockets too."""

    @property
    def client(self) -> tuple[str, int] | None: ...
    @property
    def root_path(self) -> str:
        """The route prefix that led here, ``""`` for ``/``. It is part of ``target`` too."""

    @property
    def is_websocket(self) -> bool:
        """The bodies are the frames of RFC 6455, both ways; status 200 or 101 accepts."""

    @property
    def headers(self) -> list[tuple[bytes, bytes]]:
        """All but the hop's own (connection, transfer-encoding, ...); ``host`` is among them."""

@final
class Endpoint:
    """Queue and eventfd of one event loop; server and client side of the loop share it."""

    def __new__(cls) -> Endpoint: ...
    def fileno(self) -> int: ...
    def drain(self, limit: int) -> list[tuple[int, int, object, object]]:
        """Take up to ``limit`` events, oldest first; ``[]`` when none is waiting."""

    def arm(self) -> bool:
        """Ask for a wake-up at the next event; ``False``: one came meanwhile, drain again."""

    def flush(self) -> None:
        """Hand all queued commands to the I/O threads, one wake-up each at most."""

    def tell_traced(self) -> None:
        """From now on, calls that are sampled come as TRACED_CALL."""

    def probe(self, token: int) -> None:
        """Queue a WRITABLE for ``token``, as an I/O thread would; any thread may call."""

    def close(self) -> None:
        """Cancel the loop's calls and close the descriptor. Idempotent."""

    def stats(self) -> dict[str, int]:
        """``wakeups``, ``events``, ``commands``, ``flushes``, ``queue_length_max``."""

@type_check_only
class OpenSpan(Protocol):
    """What Python has of a span that the native side has begun."""

    def fail(self, error: BaseException) -> None:
        """Note what user code has raised."""

    def on_call_end(self, unix_ns: int, encoded: bytes) -> None:
        """End a span that was taken over; ``encoded`` is it as the native side would have it."""

@final
class ServedSpans:
    """The spans of answered calls, until they are taken; 4 096 at most."""

    def take_spans(self, limit: int) -> list[bytes]:
        """Take up to ``limit``, each once; see ``ServerCall.encode_span``."""

    def stats(self) -> dict[str, int]:
        """``without_spans``: answered when the most waited already."""

@final
class ServerCall:
    """One incoming call. Any thread may use it; sending after the end is ignored."""

    @property
    def token(self) -> int: ...
    @property
    def method(self) -> int:
        """What ``Server.register`` returned for the path, or -1 for an unregistered path."""

    @property
    def path(self) -> str: ...
    @property
    def host(self) -> str: ...
    @property
    def peer(self) -> str:
        """As grpc writes it: ``ipv4:127.0.0.1:1234``, ``ipv6:[::1]:1234``, ``unix:``."""

    def note_cost(self, cost: float) -> None:
        """Record what the call has cost so far, at least 0; before its answer."""

    @property
    def subtype(self) -> str:
        """The codec in the content-type, ``application/grpc+<subtype>``; ``"proto"`` without."""

    @property
    def trusted(self) -> bool:
        """The connection has proven the mesh token."""

    @property
    def framed(self) -> bool:
        """The client is a handle: messages are framed (see ``pyserve.api.handles.framing``)."""

    @property
    def model_id(self) -> str:
        """Metadata ``multiplexed_model_id`` in any of its spellings, or ``""``."""

    @property
    def traceparent(self) -> str:
        """The W3C trace context of a call that is sampled (flag 01); ``""`` for all others."""

    def trace_headers(self) -> tuple[str, str, str]:
        """``traceparent`` as above, ``tracestate`` and ``baggage``; what did not come is ``""``."""

    def begin_span(self, spans: ServedSpans, span_id: int, span: OpenSpan) -> None:
        """Begin the server's span of a sampled call; ``spans`` gets it when the call ends."""

    @property
    def span(self) -> OpenSpan | None:
        """What ``begin_span`` was given, until the call has ended."""

    @property
    def has_open_span(self) -> bool: ...
    def take_over_span(self) -> bool:
        """Let ``span.on_call_end`` end it in place of ``spans``; ``False``: it has ended."""

    def encode_span(self) -> bytes:
        """Return it as it stands, as OTLP's ``ScopeSpans`` with it alone."""

    @property
    def is_asked(self) -> bool:
        """The client asks where its call goes: ``x-pyserve-explain: 1``."""

    def elapsed(self) -> float:
        """Seconds since the head of the call came here."""

    def set_response_subtype(self, subtype: str) -> None:
        """Answer with another codec than the request's; before anything is queued."""

    def http_head(self) -> HttpHead:
        """The head of a plain HTTP request; for calls of ``Server.register_http`` only."""

    def http_fields(self) -> HttpFields:
        """All of that head at once, for who needs most of it; new objects every time."""

    def respond(self, status: int, headers: HttpHeaders, body: Payload) -> bool:
        """Queue a whole plain HTTP answer. Ends the call."""

    def refuse(self) -> bool:
        """Queue the answer of a plain HTTP request that has not started. Ends the call.

        A router sends the request to another replica; other clients get 503.
        """

    def tell_start(self) -> bool:
        """Tell the router that work on a plain HTTP request has begun, if it has asked.

        Until then it may send the request to another replica, should this one be gone.
        """

    def start_response(self, status: int, headers: HttpHeaders) -> bool:
        """Queue the head of a plain HTTP answer; ``write`` adds to its body as it is.

        ``finish(0, "", (), None)`` ends the body; any other code breaks it off (RST_STREAM), or
        is answered with the HTTP status that stands for it while there is no head.
        """

    def metadata(self) -> Metadata: ...
    def auth_context(self) -> dict[str, list[bytes]]: ...
    def time_remaining(self) -> float | None:
        """Seconds until the deadline (never below 0), ``None`` without one."""

    def is_active(self) -> bool:
        """Neither ended nor cancelled."""

    def reply(self, message: Payload) -> bool:
        """Queue the whole answer of a unary call: headers, message, status OK. Ends the call."""

    def send_initial_metadata(self, metadata: Metadata, compression: int) -> bool:
        """Queue response headers. ``compression`` names the algorithm that messages may use."""

    def write(self, message: Payload, compression: int) -> bool:
        """Queue one message (headers first, if not sent). Never blocks; see ``writable``.

        With ``compression`` IDENTITY it goes plain, else in the call's compression if any.
        """

    def send_file(self, file: OpenFile, offset: int, length: int) -> bool:
        """Queue ``length`` bytes of a file as a piece of a plain HTTP answer, and take the file.

        ``writable`` is ``False`` until all of them have been sent and the file is closed; see
        ``file_error`` then.

        Raises:
            ValueError: The file was taken before.
        """

    @property
    def file_error(self) -> str | None:
        """Why a file was not sent, or not all of it: it has become shorter, or cannot be read."""

    def writable(self) -> bool:
        """Less than 64 KiB waits to be sent. When ``False``, a WRITABLE event will follow."""

    def taken(self, size: int) -> bool:
        """Queue the return of ``size`` bytes of receive credit after Python took a message."""

    def finish(
        self, code: int, details: str, trailing_metadata: Metadata, message: Payload | None
    ) -> bool:
        """Queue the end: optional last message, then the status. Ends the call."""

    def release(self) -> bool:
        """Queue the end of user code after a CANCEL: frees the call's slot at the gate."""

@final
class Server:
    """A gRPC server whose calls arrive at one endpoint. Starts no thread before ``start``."""

    def __new__(
        cls,
        endpoint: Endpoint,
        *,
        max_receive_message_bytes: int = 4194304,  # -1: no limit
        max_send_message_bytes: int = -1,
        max_metadata_bytes: int = 16384,
        max_concurrent_calls: int = -1,  # the admission gate; -1: no limit
        max_concurrent_streams: int = 4096,  # of one connection
        max_idle_streams: int = 1000,  # bound of calls of methods with weight 0
        default_compression: int = 0,
        enabled_compressions: Sequence[int] | None = None,
        keepalive_time_s: float | None = None,
        keepalive_timeout_s: float = 20.0,
        max_connection_age_s: float | None = None,
        max_connection_grace_s: float | None = None,
        max_connection_idle_s: float | None = None,
        idle_bytes_max: int = 50331648,  # of strangers' idle connections; 0: no limit
        trusted_proxies: Sequence[str] = (),  # as ``Ingress``, at ports for strangers
        proxy_protocol: bool = False,
        replica_id: str = "",  # what a router's handshake must find; "" for plain servers
        token: bytes = b"",  # the mesh token routers prove; b"" trusts nobody
        # What each call carries as pyserve-token-bin where ``token`` has not been proven.
        call_token: bytes = b"",
        maps_shared_memory: bool = True,  # of routers on this machine, for large bodies
    ) -> Server: ...
    def register(
        self,
        path: str,
        request_streaming: bool,
        response_streaming: bool,
        weight: int,
        *,
        subtypes: Sequence[str] | None = None,
        max_message_bytes: int | None = None,
        max_receive_message_bytes: int | None = None,
    ) -> int:
        """Make ``path`` (``/pkg.Service/Method``) known; a unary request arrives as one event.

        ``subtypes`` are the codecs that the method takes (``None``: any); another one is answered
        with UNIMPLEMENTED, which names both. ``max_message_bytes`` replaces the server's two
        limits for framed calls of this method (-1: no limit), ``max_receive_message_bytes`` the
        one of what comes for the others. Pickles are taken from trusted
        connections only.
        """

    def register_http(self, *, weight: int = 1, whole_body_bytes_max: int = 1048576) -> int:
        """Take plain HTTP requests, which trusted connections mark; returns as ``register``.

        A request whose body is empty, or announced and not larger than ``whole_body_bytes_max``,
        arrives as one event with its body; any other as a stream of MESSAGE and HALF_CLOSE.
        """

    def register_turned_away(self) -> int:
        """Hear of calls without ``call_token``, of one a second; returns as ``register``.

        They have been answered before a byte of their body was read.
        """

    def register_descriptors(self, files: Sequence[bytes]) -> list[str]:
        """Let Connect, gRPC-Web and JSON clients call what is registered so far.

        ``files`` are serialized FileDescriptorProtos. Returns what of them cannot be used, one
        sentence each.
        """

    def listen_tcp(
        self,
        address: str,
        tls: ServerTls | None,
        reuse_port: bool,
        *,
        doors: bool = False,
        in_mesh: bool = False,
    ) -> int:
        """Bind ``host:port`` now (OSError if it cannot) and return the port.

        With ``doors`` it speaks HTTP/1.1 too, and takes what ``register_http`` and
        ``register_descriptors`` have made known, as the ingress does. With ``in_mesh`` only
        routers of the mesh come, for gRPC, and none of what an ingress bounds is bounded.
        """

    def listen_unix(self, path: str) -> None: ...
    def start(self) -> None: ...
    def set_healthy(self, is_healthy: bool) -> None:
        """What ``/-/healthz`` says at doors; everything is served all the same."""

    def drain(self) -> None:
        """Stop listening, send GOAWAY; calls in flight go on."""

    def finish(self) -> bool:
        """End if no call is in flight: from then on none is let in. Whether it has ended."""

    def stop(self) -> None:
        """End what is left with UNAVAILABLE and close every connection."""

    def in_flight(self) -> int: ...
    def set_max_concurrent_calls(self, limit: int) -> None: ...
    def set_models(self, model_ids: Sequence[str]) -> None:
        """Say which models are loaded or loading; routers with a load stream learn it at once."""
    def set_cache_keys_max(self, keys_max: int) -> None:
        """Report at most so many cache entries; beyond that the oldest are dropped."""
    def store_cache(
        self, keys: Sequence[bytes | str | int], parent: bytes | str | int | None = None
    ) -> None:
        """Say which cache entries are there: a chain after the parent, or each by itself."""
    def remove_cache(self, keys: Sequence[bytes | str | int]) -> None:
        """Say which cache entries are not there any more."""
    def clear_cache(self) -> None:
        """Say that no cache entry is there any more."""
    def set_batch(
        self,
        *,
        size_max: int,
        running: int,
        busy_s: float | None,
        window_s: float | None,
        step_fixed_s: float,
        step_per_call_s: float,
    ) -> None:
        """Say what the batcher does, for the trailers that routers learn from.

        At most ``size_max`` calls are one step; ``running`` are in steps now, the first of which is
        expected to end in ``busy_s`` (``None``: an executor is free). The first of those that
        wait may wait for others for ``window_s`` (``None``: nobody waits). A step is expected to
        take ``step_fixed_s`` and ``step_per_call_s`` for each call.
        """
    def set_costs(
        self,
        *,
        budget: float,
        running: float,
        waiting: float,
        calls: int,
        places: int,
        step_s: float,
        wait_s: float,
    ) -> None:
        """Say what the requests cost that are stepped here; from any thread, once for each change.

        All states may cost ``budget`` together (0: they are not bounded). ``running`` is what the
        states take of it, ``waiting`` what requests without a state will take; these are
        ``calls`` requests, of which ``places`` have a state at most. A step is expected to take
        ``step_s``, and a new request of the mean cost gets a state after ``wait_s``.
        """
    def clear_batch(self) -> None:
        """Say that there is no batcher to be told of."""
    def stats(self) -> dict[str, int]: ...
    def measures(self) -> dict[str, MethodMeasures]:
        """By path; ``http``: plain HTTP, ``unregistered``: all paths that nobody registered.

        Methods that were never called are left out. For scrapes: it copies all histograms.
        """

@final
class ServerTls:
    def __new__(
        cls,
        pairs: Sequence[tuple[bytes, bytes]],  # (private key, certificate chain), PEM
        root_certificates: bytes | None,
        require_client_auth: bool,
        *,
        http1: bool = False,  # offer HTTP/1.1 besides HTTP/2
        allowed_names: Sequence[str] | None = None,  # SANs, one of which a client must have
    ) -> ServerTls: ...
    def reload(self, pairs: Sequence[tuple[bytes, bytes]], root_certificates: bytes | None) -> None:
        """Use these for new connections; those that are open go on.

        Raises ValueError and keeps the old ones if they cannot be used.
        """

@final
class ClientTls:
    def __new__(
        cls,
        root_certificates: bytes | None,  # PEM; None: the system's
        private_key: bytes | None,
        certificate_chain: bytes | None,
        server_name: str | None,  # overrides the name that is checked
        *,
        allowed_names: Sequence[str] | None = None,  # SANs instead of the dialled name
    ) -> ClientTls: ...
    def reload(
        self,
        root_certificates: bytes | None,
        private_key: bytes | None,
        certificate_chain: bytes | None,
    ) -> None:
        """As ``ServerTls.reload``."""

# Connectivity states, numbered as grpc.ChannelConnectivity.
@final
class Channel:
    """A client of one target: an address, or one deployment of a routing table."""

    def __new__(
        cls,
        target: str,  # "host:port", "dns:///host:port", "ipv4:...", "unix:path", or see table
        *,
        tls: ClientTls | None = None,
        table: RoutingTable | None = None,  # with it, target is "application/Deployment"
        authority: str | None = None,
        user_agent: str = "",
        max_receive_message_bytes: int = 4194304,
        max_send_message_bytes: int = -1,
        default_compression: int = 0,
        enabled_compressions: Sequence[int] | None = None,
        keepalive_time_s: float | None = None,
        keepalive_timeout_s: float = 20.0,
        reconnect_backoff_initial_s: float = 1.0,
        reconnect_backoff_max_s: float = 120.0,
    ) -> Channel: ...
    def start_call(
        self,
        endpoint: Endpoint,
        path: str,
        metadata: Metadata,
        timeout_s: float | None,
        message: Payload | None,  # not None: the only request message, half-close included
        compression: int,  # -1: the channel's default
        wait_for_ready: bool,
        response_streaming: bool,  # False: the message arrives inside DONE
        *,
        subtype: str = "",  # of the content-type; "": none, which means protobuf
        framed: bool = False,  # see ServerCall.framed
        model_id: str = "",  # sent as metadata multiplexed_model_id, and routed by
        replica_id: str = "",  # with a table: this replica or UNAVAILABLE, whatever its load
        reservation: Reservation | None = None,  # with a table: the place that was chosen
        options: CallOptions | None = None,
    ) -> ClientCall:
        """Queue a new call at ``endpoint``; ``ClientCall.started`` says whether to flush."""

    def choose(
        self,
        endpoint: Endpoint,
        path: str,
        timeout_s: float | None,
        model_id: str,
        options: CallOptions | None = None,
    ) -> tuple[int, bool]:
        """Take a place at a replica, as a call would; with a table only.

        Returns a token and whether to flush. One CHOSEN event follows, whose subject is the
        ``Reservation``, or a DONE event when there was none in time (the subject is the code's
        number, the payload the details).
        """

    def state(self, try_to_connect: bool) -> int: ...
    def watch_state(self, endpoint: Endpoint, last_state: int) -> int:
        """Return a token; one STATE event follows when the state differs from ``last_state``."""

    def close(self) -> None:
        """Cancel the calls in flight and close the connections. Idempotent."""

@final
class Reservation:
    """A place at one replica; given back when it is released, or dropped unused."""

    @property
    def replica_id(self) -> str: ...
    @property
    def node(self) -> str: ...
    def release(self) -> None:
        """Give the place back, unless a call has taken it. Idempotent."""

@final
class ClientCall:
    @property
    def token(self) -> int: ...
    @property
    def started(self) -> bool:
        """The call's start was the first queued command of this turn: schedule a flush."""

    def peer(self) -> str: ...
    def write(self, message: Payload, compression: int) -> bool:
        """Queue one message; plain with ``compression`` IDENTITY, else as the call is set."""

    def writable(self) -> bool: ...
    def half_close(self) -> bool: ...
    def taken(self, size: int) -> bool: ...
    def cancel(self, code: int, details: str) -> bool:
        """Queue the reset. No DONE follows; the caller has settled the status itself."""

    def time_remaining(self) -> float | None: ...
    def subtype(self) -> str | None:
        """The codec of the answer's content-type, as ``ServerCall.subtype``; None before it."""

    def initial_metadata(self) -> Metadata | None: ...
    def code(self) -> int | None: ...
    def details(self) -> str | None: ...
    def debug_error_string(self) -> str: ...
    def retry_after_s(self) -> float | None: ...  # of a refusal, when its router says so
    def trailing_metadata(self) -> Metadata | None: ...

@final
class CallOptions:
    """What a call through a table wants of the router; for any number of calls."""

    def __new__(
        cls,
        *,
        session_id: str = "",  # sent as metadata x-session-id, and routed by
        priority: int = 0,  # -128 to 127; higher ones leave the queue first
        caller: int = 0,  # below 2**63; the queue is fair between callers; 0: the channel
        idempotent: bool = False,  # may be sent again after it has started
        locality: tuple[bool, bool] | None = None,  # near first: node, zone; None: as deployed
        cost: float | None = None,  # what it costs its deployment; None: as calls like it
        cache_keys: Sequence[bytes | str | int] = ...,  # sent as pyserve-cache-keys, and routed by
    ) -> CallOptions: ...

@final
class Ranker:
    """Asks Python for the order in which replicas are tried, in a thread of its own.

    ``choose`` gets the replicas (id, node, calls in flight, capacity, models), the path, the
    session and the model (``""``: none), and returns ids, best first. It should not raise: what it
    raises is shown on standard error, and the router's own policy decides. So it does for calls
    that wait for 100 ms, and for those that find 1024 waiting. After three answers in a row that
    did not come, a deployment asks by one call after 0.5, 1, 2, 4 and then each 8 s, until there is
    an answer in time; see ``RoutingTable.unanswered``.

    ``listener`` is told where calls go, in the same thread: a call's number, the replica, and path,
    session and model; and then, with ``None`` for these, that the call is over there. Calls that
    find 1024 waiting are not told of, neither their beginning nor their end.
    """

    def __new__(
        cls,
        choose: Callable[
            [list[tuple[str, str, int, int, list[str]]], str, str, str], Sequence[str]
        ],
        listener: Callable[[int, str, tuple[str, str, str] | None], None] | None = None,
    ) -> Ranker: ...

@final
class DeploymentRoute:
    """One deployment and its ready replicas, for a table."""

    def __new__(
        cls,
        view: bytes,  # a serialized DeploymentView; its router's options are not looked at
        *,
        methods: dict[str, list[str]] = ...,  # by services of the view; of others nothing is known
        options: dict[
            str, float
        ] = ...,  # of its router, by their names in docs/reference/routing.md
        ranker: Ranker | None = None,  # asked before the policy
    ) -> DeploymentRoute: ...

@final
class CallRecords:
    """Finished calls through a table that are worth keeping, and who of them is sampled.

    A call is sampled as its ``traceparent`` says. One that has none begins a trace if
    ``samples_root``, in ``sampling_ratio`` of the cases. A ratio of ``None`` samples nobody at all.
    A sampled call goes to replicas with a ``traceparent`` of its attempt, any other with what it
    came with. ``tracestate`` and ``baggage`` go as they came.

    At most 4096 calls wait to be taken, then the oldest go; of failed and slow ones at most 1000 a
    second are kept.
    """

    def __new__(
        cls,
        *,
        sampling_ratio: float | None = 0.0,
        slowest: int = 1000,  # so many of the slowest calls of the last minutes
        samples_root: bool = True,
    ) -> CallRecords: ...
    def set_sampling_ratio(self, ratio: float | None) -> None: ...
    def set_keep_all(self, on: bool) -> None:
        """Keep every call that ends, while on; those that are kept for nothing else for ``all``."""

    def take(self, limit: int) -> list[CallRecord]:
        """Take up to ``limit``, oldest first. Each is taken once."""

    def take_spans(self, limit: int) -> list[bytes]:
        """Take the spans of up to ``limit`` sampled calls, each once; see ``encode_spans``.

        The calls wait for ``take`` all the same. Other threads run meanwhile.
        """

    def stats(self) -> dict[str, int]:
        """``recorded``, ``dropped`` (not taken in time, or too many at once), ``waiting``.

        ``without_spans``: sampled calls whose spans were not taken in time.
        """

@final
class CallRecord:
    """One finished call. Times are nanoseconds, from the call's start if nothing else is said."""

    @staticmethod
    def of(fields: object) -> CallRecord:
        """Make one of an object with the properties below, for tests of what reads records."""

    def encode_spans(self) -> list[bytes]:
        """Return the spans of a sampled call, its own first; each a ``ScopeSpans`` of OTLP.

        Those of its attempts follow, and of the times that it was parked.
        """

    @property
    def request_id(self) -> str: ...
    @property
    def kept_for(self) -> str:
        """The first that holds: failed, asked (by its client), slow, sampled, all.

        Failed are codes that are the mesh's fault and not the request's, and statuses from 500 on.
        """

    @property
    def trace_id(self) -> bytes:
        """16 bytes, or ``b""`` if the call has none."""

    @property
    def span_id(self) -> bytes:
        """8 bytes: the span of the call here, or ``b""`` if it is not sampled."""

    @property
    def parent_id(self) -> bytes:
        """8 bytes: the span of its caller, or ``b""``."""

    @property
    def tracestate(self) -> str: ...
    @property
    def is_sampled(self) -> bool: ...
    @property
    def door(self) -> str:
        """grpc, connect, grpc-web, json, rest, openai, anthropic, http, websocket, or handle."""

    @property
    def method(self) -> str:
        """``/pkg.Service/Method``; of plain HTTP the verb and the route prefix, ``POST /shop``."""

    @property
    def path(self) -> str:
        """Of plain HTTP what was asked for, without the query; else ``""``."""

    @property
    def application(self) -> str: ...
    @property
    def deployment(self) -> str: ...
    @property
    def peer(self) -> str:
        """As ``ServerCall.peer``; ``""`` for a handle of this process."""

    @property
    def model_id(self) -> str: ...
    @property
    def start_unix_ns(self) -> int: ...
    @property
    def duration_ns(self) -> int: ...
    @property
    def parked_ns(self) -> int:
        """Of the duration: waited in the router, before or between attempts."""

    @property
    def first_byte_ns(self) -> int:
        """When the head of the answer came, or -1."""

    @property
    def code(self) -> int:
        """Of gRPC; 0 for plain HTTP."""

    @property
    def http_status(self) -> int:
        """Of plain HTTP, else 0; 499 where the client left."""

    @property
    def refused(self) -> str:
        """Why no replica took it, see ``DeploymentMeasures.refused``; ``""`` if one did."""

    @property
    def answered_by(self) -> str:
        """``replica``; ``ingress``, also for the router of a handle; ``client``: it left."""

    @property
    def reason(self) -> str:
        """Why the ingress told the client something else than the replica; else ``""``.

        A request that is wrong has none, since the text would quote it.
        """

    @property
    def request_bytes(self) -> int: ...
    @property
    def response_bytes(self) -> int: ...
    @property
    def explanation(self) -> str:
        """The line of ``x-pyserve-explain``: of calls that ask, and 100 sampled ones a second."""

    @property
    def attempts(self) -> list[tuple[str, bytes, int, int, int, str, str]]:
        """Replica, span (``b""``: none), start, head of the answer (-1: none), end, why, outcome.

        Why: first, refused_before, connect_failed_before, retry, hedge. Outcome: ok, failed,
        refused, connect_failed, late, cancelled, superseded. At most 32.
        """

@final
class RoutingTable:
    """Deployments, their routers and their replica connections; shared by ingress and channels."""

    def __new__(
        cls,
        *,
        node: str,
        zone: str,
        token: bytes,
        seed: int,
        tls: ClientTls | None = None,  # for connections to replicas over TCP
        connect_timeout_s: float = 2.0,  # of a replica, the handshake included
        idle_timeout_s: float | None = None,  # a replica that sends nothing for a whole request
        records: CallRecords | None = None,  # judges all calls
        # With each replica on this machine, for large bodies; 0: none.
        shared_memory_bytes: int = ...,
    ) -> RoutingTable: ...
    def apply(self, version: int, deployments: Sequence[DeploymentRoute]) -> None:
        """Replace the table. Replicas that are gone get nothing new; their calls go on."""

    def replicas(self, target: str) -> list[tuple[str, str, list[str]]]:
        """Id, node and known models of each replica of "application/Deployment"."""

    def unanswered(self) -> dict[str, int]:
        """Per "application/Deployment": how often its ``ranker`` did not answer in time.

        Those that always did are left out; a new ranker is counted anew.
        """

    def stats(self) -> dict[str, dict[str, object]]:
        """Per "application/Deployment": the counts of ``RouterStats``, by their names.

        ``router_rs/core/src/router/types.rs`` has their meanings. ``in_flight`` is by replica id,
        ``in_flight_total`` their sum; ``descriptor_problems`` says why some of its
        ``file_descriptors`` are not used.
        """

    def measures(self) -> dict[str, DeploymentMeasures]:
        """Times and ends of calls, per "application/Deployment"; for scrapes, as those of a server.

        Replicas that have left the table are left out.
        """

@final
class IngressLimits:
    """What clients of an ingress may do. Sizes in bytes, times in seconds."""

    def __new__(
        cls,
        *,
        connections_max: int = 20000,  # fewer where the process may not open so many
        idle_bytes_max: int = 50331648,  # kept by connections that rest, estimated; 0: no limit
        streams_max: int = 1024,  # of one HTTP/2 connection
        header_bytes_max: int = 16384,
        body_bytes_max: int | None = None,  # of one plain HTTP request
        message_bytes_max: int = 4194304,  # of one message that is transcoded
        refuses_unknown_fields: bool = False,  # in its JSON, where the client says nothing
        header_timeout_s: float = 10.0,  # for a greeting, and for the head of each request
        idle_timeout_s: float = 3600.0,  # a connection without a byte and a call
        body_timeout_s: float = 60.0,  # a client that neither sends nor takes for so long
        keep_alive_timeout_s: float = 90.0,  # HTTP/1.1 between two requests
        request_timeout_s: float | None = None,  # as ``Ingress.set_request_timeout``
        cors_origins: Sequence[str] = ("*",),  # whose pages may read answers
    ) -> IngressLimits: ...

@final
class AccessPolicy:
    """Who may call what. Decided natively, before anything is forwarded."""

    def __new__(
        cls, rules: Sequence[AccessRule], *, default_allow: bool = False
    ) -> AccessPolicy: ...
    def replace(self, rules: Sequence[AccessRule], *, default_allow: bool = False) -> None:
        """Use these rules for calls from now on."""

    def take_refusals(self) -> list[tuple[int, str, str, list[str], bool]]:
        """Take what was refused since the last time, oldest first, 256 at most.

        Each is the number of its status code, the path, the peer as grpc writes it, the names in
        its certificate, and whether it had a bearer token.
        """

    def stats(self) -> dict[str, int]:
        """``allowed``, ``unauthenticated``, ``denied``; ``unrecorded``: refused and not kept."""

@final
class AccessRule:
    def __new__(
        cls,
        *,
        name: str,
        paths: Sequence[str],  # "/pkg.Service/Method", "/pkg.Service/*", "/prefix/**"
        identities: Sequence[str] | None = None,  # SANs of client certificates; None: none needed
        token_hashes: Sequence[bytes] | None = None,  # SHA-256 of bearer tokens; None: none needed
        anonymous: bool = False,  # everybody
        applications: Sequence[str] | None = None,  # whose calls it is about; None: all
    ) -> AccessRule: ...

@final
class Ingress:
    """The listener in front of a table. Starts no thread before ``start``."""

    def __new__(
        cls,
        table: RoutingTable,
        *,
        addresses: Sequence[str],  # "host:port"; port 0 picks one
        io_threads: int,
        tls: ServerTls | None,
        limits: IngressLimits | None = None,
        root_path: str = "",  # a prefix that whoever is in front has removed
        access: AccessPolicy | None = None,
        trusted_proxies: Sequence[str] = (),  # networks, whose word on clients is taken
        proxy_protocol: bool = False,  # their connections begin with a header of version 2
    ) -> Ingress: ...
    def set_request_timeout(self, timeout_s: float | None) -> None:
        """Of requests for which neither client nor deployment says a time, from now on; None: none.

        It holds for gRPC calls, for those in other protocols, and for plain HTTP; a WebSocket has
        to be accepted within it.
        """
    def set_healthy(self, is_healthy: bool) -> None:
        """What ``/-/healthz`` says to load balancers; everything is served all the same."""

    def start(self, held: Sequence[int] = ...) -> list[str]:
        """Bind (OSError if a port is taken) and serve; returns the bound addresses.

        ``held`` are descriptors of bound TCP sockets, which are its own from here on; by default
        there are none.
        """

    def drain(self) -> None: ...
    def stop(self) -> None: ...
    def in_flight(self) -> int: ...
    def stats(self) -> dict[str, int]: ...
    def doors(self) -> dict[str, dict[str, int]]:
        """By protocol: ``open`` requests, and answered ones by the class of their HTTP status.

        The protocols are grpc, connect, grpc-web, json, rest, openai, anthropic, http and
        websocket; what is answered before a call is known to be in another protocol counts as
        http. A code of gRPC counts by the status that stands for it (``http_status``), ``left``
        are those whose clients left.
        """

def certificate_lifetime_s(chain: bytes) -> tuple[int, int]:
    """From when to when all certificates of a PEM are good, in seconds of the Unix epoch.

    ``ValueError`` if there is none, or one cannot be read.
    """

def keep_freed_memory() -> None:
    """Let malloc keep up to 64 MiB of freed memory for the next large messages.

    It holds for the whole process, user code included.
    """

def raise_descriptor_limit() -> None:
    """Let the process open as many files and sockets as its hard limit allows."""

def has_digits(text: bytes | bytearray, count: int) -> bool:
    """Say whether ``text`` has ``count`` ASCII digits in a row."""

def may_have_infinity(text: bytes | bytearray) -> bool:
    """Say whether a JSON text may have a number beyond what a float holds (1.8e308).

    Numbers inside of its strings count too; one beyond is always found.
    """

def http_status(code: int) -> int:
    """Return the HTTP status in which plain HTTP tells a gRPC code, by its number."""

def forked() -> bool:
    """This process is a fork of the one that started the I/O threads: the runtime is unusable."""

def before_fork() -> None:
    """Wait until no socket is half open, keep it so, and note what a fork would share."""

def after_fork_in_parent() -> None:
    """Let sockets be opened again."""

def after_fork_in_child() -> None:
    """Shut the sockets of the parent's I/O threads, see ``bridge._forks``."""
