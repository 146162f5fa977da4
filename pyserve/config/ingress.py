"""The environment's settings of the ingress, and of replica ports for external load balancers.

``docs/reference/ingress.md`` explains every variable, and has those of Ray Serve beside them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from pyserve.config import variables as read
from pyserve.config.http import (
    DEFAULT_HTTP_PORT,
    HTTPOptions,
    ProxyLocation,
    check_location,
    check_root_path,
    gRPCOptions,
)
from pyserve.config.proxies import read_proxy_protocol, read_trusted_proxies
from pyserve.config.tls import environment_of_tls
from pyserve.config.validation import refuse

# The variables that options of a mesh's start are passed on in, see ``environment_of`` and
# ``TracingConfig.environment``. Those that can change while the mesh runs are not among them.
OPTION_VARIABLES = (
    "PYSERVE_GRPC_SERVICER_FUNCTIONS",
    "PYSERVE_INGRESS_KEEP_ALIVE_TIMEOUT_S",
    "PYSERVE_INGRESS_LOCATION",
    "PYSERVE_INGRESS_ROOT_PATH",
    "PYSERVE_LAUNCHER",
    "PYSERVE_LAUNCHER_OPTIONS",
    "PYSERVE_TLS_CA_FILE",
    "PYSERVE_TLS_CERT_FILE",
    "PYSERVE_TLS_KEY_FILE",
    "PYSERVE_TRACING_ENABLED",
    "PYSERVE_TRACING_EXPORTER",
    "PYSERVE_TRACING_SAMPLING_RATIO",
)
# Ray Serve's names for the same settings.
ALIASES = {
    "PYSERVE_BIND_HOST": "RAY_SERVE_DEFAULT_HTTP_HOST",
    "PYSERVE_INGRESS_PORT": "RAY_SERVE_DEFAULT_HTTP_PORT",
    "PYSERVE_INGRESS_MAX_CONNECTIONS": "RAY_SERVE_HAPROXY_MAXCONN",
    "PYSERVE_INGRESS_IO_THREADS": "RAY_SERVE_HAPROXY_NBTHREAD",
    "PYSERVE_INGRESS_CLIENT_TIMEOUT_S": "RAY_SERVE_HAPROXY_TIMEOUT_CLIENT_S",
    "PYSERVE_INGRESS_SERVER_TIMEOUT_S": "RAY_SERVE_HAPROXY_TIMEOUT_SERVER_S",
    "PYSERVE_INGRESS_CONNECT_TIMEOUT_S": "RAY_SERVE_HAPROXY_TIMEOUT_CONNECT_S",
    "PYSERVE_INGRESS_HARD_STOP_AFTER_S": "RAY_SERVE_HAPROXY_HARD_STOP_AFTER_S",
    "PYSERVE_INGRESS_KEEP_ALIVE_TIMEOUT_S": "RAY_SERVE_HTTP_KEEP_ALIVE_TIMEOUT_S",
    "PYSERVE_INGRESS_DRAIN_S": "RAY_SERVE_PROXY_MIN_DRAINING_PERIOD_S",
    "PYSERVE_REQUEST_TIMEOUT_S": "RAY_SERVE_REQUEST_PROCESSING_TIMEOUT_S",
    "PYSERVE_DIRECT_INGRESS": "RAY_SERVE_ENABLE_DIRECT_INGRESS",
    "PYSERVE_DIRECT_INGRESS_MIN_HTTP_PORT": "RAY_SERVE_DIRECT_INGRESS_MIN_HTTP_PORT",
    "PYSERVE_DIRECT_INGRESS_MAX_HTTP_PORT": "RAY_SERVE_DIRECT_INGRESS_MAX_HTTP_PORT",
    "PYSERVE_DIRECT_INGRESS_MIN_GRPC_PORT": "RAY_SERVE_DIRECT_INGRESS_MIN_GRPC_PORT",
    "PYSERVE_DIRECT_INGRESS_MAX_GRPC_PORT": "RAY_SERVE_DIRECT_INGRESS_MAX_GRPC_PORT",
    "PYSERVE_DIRECT_INGRESS_PORT_TRIES": "RAY_SERVE_DIRECT_INGRESS_PORT_RETRY_COUNT",
}
# What browsers send (RFC 6454, section 6.2); `null` is that of files.
_ORIGIN = re.compile(r"\*|null|[A-Za-z][A-Za-z0-9+.\-]*://[^\s/?#@*]+")
_COUNT_MAX = 2**31 - 1
_PORT_MAX = 65535
# A thread each for a machine far larger than those that exist.
_THREADS_MAX = 1024
_BYTES_MAX = 2**63 - 1
_MEBIBYTE = 1024 * 1024


@dataclass(frozen=True, kw_only=True)
class IngressSettings:
    """Limits and times of one ingress. Sizes in bytes, times in seconds.

    Attributes:
        port: where it listens when nobody gives an address.
        location: ``Disabled``: the mesh has no ingress.
        root_path: a prefix that whoever is in front has removed from the paths; "": none.
        connections_max: client connections; for one more, an idle one is closed.
        idle_bytes_max: what connections that rest keep in memory, estimated by what they speak;
            beyond it those that have rested longest are closed. 0: no limit.
        streams_max: calls of one HTTP/2 connection at once.
        io_threads: native threads; None: one for each core, at most four.
        header_bytes_max: head of one request.
        body_bytes_max: body of one plain HTTP request; None: no limit.
        message_bytes_max: one message that is transcoded (JSON, Connect, gRPC-Web).
        refuses_unknown_fields: JSON with fields that its message does not have is refused (400),
            unless the client says otherwise; else they are ignored.
        client_timeout_s: a connection on which nothing happens and no call runs.
        header_timeout_s: from the first byte of a head to its last.
        body_timeout_s: a client that neither sends nor takes what it is due.
        keep_alive_timeout_s: HTTP/1.1, between two requests.
        server_timeout_s: a replica that sends nothing for a call; None: no limit.
        connect_timeout_s: of a replica, the handshake included.
        request_timeout_s: calls for which nobody else says a time; None: no limit.
        drain_s: how long a draining ingress takes new connections, while its health says no.
        hard_stop_after_s: longest drain, whatever the deployments allow their calls.
        cors_origins: who may use gRPC-Web and Connect from a browser; "*": everybody.
        trusted_proxies: networks of proxies, whose word on the addresses of clients is taken.
        proxy_protocol: their connections begin with a header of the PROXY protocol, version 2.
    """

    port: int = DEFAULT_HTTP_PORT
    location: ProxyLocation = ProxyLocation.EveryNode
    root_path: str = ""
    connections_max: int = 20_000
    idle_bytes_max: int = 48 * 1024 * 1024
    streams_max: int = 1024
    io_threads: int | None = None
    header_bytes_max: int = 16 * 1024
    body_bytes_max: int | None = None
    message_bytes_max: int = 4 * 1024 * 1024
    refuses_unknown_fields: bool = False
    client_timeout_s: float = 3600.0
    header_timeout_s: float = 10.0
    body_timeout_s: float = 60.0
    keep_alive_timeout_s: float = 90.0
    server_timeout_s: float | None = None
    connect_timeout_s: float = 2.0
    request_timeout_s: float | None = None
    drain_s: float = 0.0
    hard_stop_after_s: float = 120.0
    cors_origins: tuple[str, ...] = ("*",)
    trusted_proxies: tuple[str, ...] = ()
    proxy_protocol: bool = False


@dataclass(frozen=True, kw_only=True)
class PortRange:
    """Ports ``first`` to ``last``, both included."""

    first: int
    last: int

    def __len__(self) -> int:
        return self.last - self.first + 1


@dataclass(frozen=True, kw_only=True)
class DirectIngressSettings:
    """Ports of replicas for balancers outside of the mesh.

    Attributes:
        enabled: each replica binds one port of each range.
        http: for plain HTTP.
        grpc: for gRPC.
        port_tries: ports that may be taken before a replica gives up.
        quarantine_s: how long a port that a replica has left is not used again, so that a
            balancer which has not noticed yet does not reach another deployment.
    """

    enabled: bool = False
    http: PortRange = field(default_factory=lambda: PortRange(first=30_000, last=31_000))
    grpc: PortRange = field(default_factory=lambda: PortRange(first=40_000, last=41_000))
    port_tries: int = 100
    quarantine_s: float = 60.0


def read_ingress_settings(variables: Mapping[str, str]) -> IngressSettings:
    """Read ``PYSERVE_INGRESS_*``; the names of Ray Serve have been replaced before.

    Raises:
        OptionError: a variable has a value that cannot be used.
    """
    given = {
        name: value
        for name, value in (*_counts(variables), *_times(variables))
        if value is not None
    }
    default = IngressSettings()
    trusted = read_trusted_proxies(variables)
    return IngressSettings(
        **given,  # type: ignore[arg-type]  # the names are those of the fields
        location=check_location("PYSERVE_INGRESS_LOCATION", variables["PYSERVE_INGRESS_LOCATION"])
        if variables.get("PYSERVE_INGRESS_LOCATION")
        else default.location,
        root_path=check_root_path(
            "PYSERVE_INGRESS_ROOT_PATH", variables["PYSERVE_INGRESS_ROOT_PATH"]
        )
        if variables.get("PYSERVE_INGRESS_ROOT_PATH")
        else default.root_path,
        server_timeout_s=read.limit_seconds(variables, "PYSERVE_INGRESS_SERVER_TIMEOUT_S", None),
        request_timeout_s=read.limit_seconds(variables, "PYSERVE_REQUEST_TIMEOUT_S", None),
        refuses_unknown_fields=read.switch(variables, "PYSERVE_INGRESS_REFUSE_UNKNOWN_FIELDS"),
        cors_origins=_origins(variables) or default.cors_origins,
        trusted_proxies=trusted,
        proxy_protocol=read_proxy_protocol(variables, trusted),
    )


def _origins(variables: Mapping[str, str]) -> tuple[str, ...]:
    name = "PYSERVE_INGRESS_CORS_ORIGINS"
    found = read.words(variables, name)
    for origin in found:
        if not _ORIGIN.fullmatch(origin):
            raise refuse(
                name,
                origin,
                "'*', or origins with commas between them, such as https://shop.example.com: "
                "scheme, host and port, without a path",
            )
    return found


def _counts(variables: Mapping[str, str]) -> list[tuple[str, int | None]]:
    def whole(name: str, maximum: int = _COUNT_MAX, minimum: int = 1) -> int | None:
        return read.whole(variables, f"PYSERVE_INGRESS_{name}", minimum=minimum, maximum=maximum)

    def size(name: str) -> int | None:
        return read.size_bytes(variables, f"PYSERVE_INGRESS_{name}", maximum=_BYTES_MAX)

    return [
        ("port", whole("PORT", _PORT_MAX, 0)),
        ("connections_max", whole("MAX_CONNECTIONS")),
        ("idle_bytes_max", _idle_bytes(variables)),
        ("streams_max", whole("MAX_STREAMS")),
        ("io_threads", whole("IO_THREADS", _THREADS_MAX)),
        ("header_bytes_max", size("MAX_HEADER_BYTES")),
        ("body_bytes_max", size("MAX_BODY_BYTES")),
        ("message_bytes_max", size("MAX_MESSAGE_BYTES")),
    ]


def _idle_bytes(variables: Mapping[str, str]) -> int | None:
    name = "PYSERVE_IDLE_CONNECTION_MEMORY_MB"
    found = read.whole(variables, name, minimum=0, maximum=_COUNT_MAX)
    return None if found is None else found * _MEBIBYTE


def _times(variables: Mapping[str, str]) -> list[tuple[str, float]]:
    def time(name: str, *, exclusive: bool = True) -> tuple[str, float]:
        default: float = getattr(IngressSettings, name)
        variable = f"PYSERVE_INGRESS_{name.upper()}"
        return name, read.seconds(variables, variable, default, exclusive=exclusive)

    return [
        time("client_timeout_s"),
        time("header_timeout_s"),
        time("body_timeout_s"),
        time("keep_alive_timeout_s"),
        time("connect_timeout_s"),
        time("drain_s", exclusive=False),
        time("hard_stop_after_s", exclusive=False),
    ]


def read_direct_settings(variables: Mapping[str, str]) -> DirectIngressSettings:
    """Read ``PYSERVE_DIRECT_INGRESS*``.

    Raises:
        OptionError: a variable has a value that cannot be used, or a range is empty.
    """
    default = DirectIngressSettings()
    tries = read.whole(variables, "PYSERVE_DIRECT_INGRESS_PORT_TRIES", minimum=1, maximum=_PORT_MAX)
    return DirectIngressSettings(
        enabled=read.switch(variables, "PYSERVE_DIRECT_INGRESS"),
        http=_ports(variables, "HTTP", default.http),
        grpc=_ports(variables, "GRPC", default.grpc),
        port_tries=default.port_tries if tries is None else tries,
        quarantine_s=read.seconds(
            variables, "PYSERVE_DIRECT_INGRESS_QUARANTINE_S", default.quarantine_s
        ),
    )


def _ports(variables: Mapping[str, str], protocol: str, default: PortRange) -> PortRange:
    def port(end: str, fallback: int) -> int:
        name = f"PYSERVE_DIRECT_INGRESS_{end}_{protocol}_PORT"
        found = read.whole(variables, name, minimum=1, maximum=_PORT_MAX)
        return fallback if found is None else found

    first, last = port("MIN", default.first), port("MAX", default.last)
    if first > last:
        raise refuse(
            f"PYSERVE_DIRECT_INGRESS_MIN_{protocol}_PORT",
            first,
            f"a port up to PYSERVE_DIRECT_INGRESS_MAX_{protocol}_PORT={last}",
        )
    return PortRange(first=first, last=last)


def environment_of(http: HTTPOptions | None, grpc: gRPCOptions | None) -> dict[str, str]:
    """Return the variables that tell a mesh's process what options say, without the addresses."""
    environment = {}
    limits = [
        options.request_timeout_s
        for options in (http, grpc)
        if options is not None and options.request_timeout_s is not None
    ]
    if limits:
        # 0 is none, so the smallest limit that is one wins.
        environment["PYSERVE_REQUEST_TIMEOUT_S"] = repr(min(filter(None, limits), default=0.0))
    if grpc is not None and grpc.grpc_servicer_functions:
        paths = ",".join(grpc.grpc_servicer_functions)
        environment["PYSERVE_GRPC_SERVICER_FUNCTIONS"] = paths
    if http is not None:
        environment.update(environment_of_tls(http))
        if http.root_path:
            environment["PYSERVE_INGRESS_ROOT_PATH"] = http.root_path
        if http.keep_alive_timeout_s is not None:
            name = "PYSERVE_INGRESS_KEEP_ALIVE_TIMEOUT_S"
            environment[name] = repr(http.keep_alive_timeout_s)
        if http.location is not None:
            environment["PYSERVE_INGRESS_LOCATION"] = str(http.location)
    return environment
