"""The environment's settings of the ingress, and of replica ports for external load balancers.

``docs/reference/ingress.md`` explains every variable, and has those of Ray Serve beside them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial

from pyserve.config import variables as read
from pyserve.config.declared import (
    Reader,
    aliases,
    documented,
    read_declared,
    setting,
    variables_of,
)
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
# Ray Serve's names of direct ports.
_DIRECT_ALIASES = {
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


def _count(maximum: int = _COUNT_MAX, minimum: int = 1, factor: int = 1) -> Reader:
    def reader(variables: Mapping[str, str], name: str, default: int | None) -> int | None:
        found = read.whole(variables, name, minimum=minimum, maximum=maximum)
        return default if found is None else found * factor

    return reader


def _size(variables: Mapping[str, str], name: str, default: int | None) -> int | None:
    found = read.size_bytes(variables, name, maximum=_BYTES_MAX)
    return default if found is None else found


def _switch(variables: Mapping[str, str], name: str, default: bool) -> bool:
    return read.switch(variables, name, default=default)


def _checked(check: Callable[[str, str], object]) -> Reader:
    def reader(variables: Mapping[str, str], name: str, default: object) -> object:
        return check(name, variables[name]) if variables.get(name) else default

    return reader


def _origins(variables: Mapping[str, str], name: str, default: tuple[str, ...]) -> tuple[str, ...]:
    found = read.words(variables, name)
    for origin in found:
        if not _ORIGIN.fullmatch(origin):
            raise refuse(
                name,
                origin,
                "'*', or origins with commas between them, such as https://shop.example.com: "
                "scheme, host and port, without a path",
            )
    return found or default


def _trusted(variables: Mapping[str, str], _name: str, _default: object) -> tuple[str, ...]:
    return read_trusted_proxies(variables)


def _speaks_proxy_protocol(variables: Mapping[str, str], _name: str, _default: object) -> bool:
    return read_proxy_protocol(variables, read_trusted_proxies(variables))


_TIME = partial(read.seconds, exclusive=True)


@documented
@dataclass(frozen=True, kw_only=True)
class IngressSettings:
    """Limits and times of one ingress. Sizes in bytes, times in seconds."""

    port: int = setting(
        DEFAULT_HTTP_PORT,
        "PYSERVE_INGRESS_PORT",
        _count(_PORT_MAX, minimum=0),
        "where it listens when no address is given",
        alias="RAY_SERVE_DEFAULT_HTTP_PORT",
    )
    location: ProxyLocation = setting(
        ProxyLocation.EveryNode,
        "PYSERVE_INGRESS_LOCATION",
        _checked(check_location),
        "`Disabled`: the mesh has no ingress",
        shown="EveryNode",
    )
    root_path: str = setting(
        "",
        "PYSERVE_INGRESS_ROOT_PATH",
        _checked(check_root_path),
        "a prefix that a proxy in front has removed from the paths",
        shown="none",
    )
    connections_max: int = setting(
        20_000,
        "PYSERVE_INGRESS_MAX_CONNECTIONS",
        _count(),
        "client connections; for one more, an idle one is closed",
        alias="RAY_SERVE_HAPROXY_MAXCONN",
    )
    idle_bytes_max: int = setting(
        48 * 1024 * 1024,
        "PYSERVE_IDLE_CONNECTION_MEMORY_MB",
        _count(minimum=0, factor=_MEBIBYTE),
        "estimated memory of idle connections, in MiB in the variable; beyond it those that "
        "have been idle longest are closed; 0: no limit",
        shown="48",
    )
    streams_max: int = setting(
        1024,
        "PYSERVE_INGRESS_MAX_STREAMS",
        _count(),
        "calls of one HTTP/2 connection at once",
    )
    io_threads: int | None = setting(
        None,
        "PYSERVE_INGRESS_IO_THREADS",
        _count(_THREADS_MAX),
        "native threads that serve clients",
        alias="RAY_SERVE_HAPROXY_NBTHREAD",
        shown="one for each core, at most 4",
    )
    header_bytes_max: int = setting(
        16 * 1024,
        "PYSERVE_INGRESS_MAX_HEADER_BYTES",
        _size,
        "head of one request",
    )
    body_bytes_max: int | None = setting(
        None,
        "PYSERVE_INGRESS_MAX_BODY_BYTES",
        _size,
        "body of one plain HTTP request",
    )
    message_bytes_max: int = setting(
        4 * 1024 * 1024,
        "PYSERVE_INGRESS_MAX_MESSAGE_BYTES",
        _size,
        "one message that is transcoded (JSON, Connect, gRPC-Web)",
    )
    refuses_unknown_fields: bool = setting(
        False,
        "PYSERVE_INGRESS_REFUSE_UNKNOWN_FIELDS",
        _switch,
        "1: JSON with fields that its message does not have is refused with 400, unless the "
        "client says otherwise; 0: such fields are ignored",
    )
    client_timeout_s: float = setting(
        3600.0,
        "PYSERVE_INGRESS_CLIENT_TIMEOUT_S",
        _TIME,
        "a connection on which nothing happens and no call runs",
        alias="RAY_SERVE_HAPROXY_TIMEOUT_CLIENT_S",
    )
    header_timeout_s: float = setting(
        10.0,
        "PYSERVE_INGRESS_HEADER_TIMEOUT_S",
        _TIME,
        "from the first byte of a head to its last",
    )
    body_timeout_s: float = setting(
        60.0,
        "PYSERVE_INGRESS_BODY_TIMEOUT_S",
        _TIME,
        "a client that neither sends nor reads",
    )
    keep_alive_timeout_s: float = setting(
        90.0,
        "PYSERVE_INGRESS_KEEP_ALIVE_TIMEOUT_S",
        _TIME,
        "HTTP/1.1, between two requests",
        alias="RAY_SERVE_HTTP_KEEP_ALIVE_TIMEOUT_S",
    )
    server_timeout_s: float | None = setting(
        None,
        "PYSERVE_INGRESS_SERVER_TIMEOUT_S",
        read.limit_seconds,
        "a replica that sends nothing for a call",
        alias="RAY_SERVE_HAPROXY_TIMEOUT_SERVER_S",
    )
    connect_timeout_s: float = setting(
        2.0,
        "PYSERVE_INGRESS_CONNECT_TIMEOUT_S",
        _TIME,
        "connecting to a replica, the handshake included",
        alias="RAY_SERVE_HAPROXY_TIMEOUT_CONNECT_S",
    )
    request_timeout_s: float | None = setting(
        None,
        "PYSERVE_REQUEST_TIMEOUT_S",
        read.limit_seconds,
        "calls for which neither client nor deployment sets a time",
        alias="RAY_SERVE_REQUEST_PROCESSING_TIMEOUT_S",
    )
    drain_s: float = setting(
        0.0,
        "PYSERVE_INGRESS_DRAIN_S",
        read.seconds,
        "how long a draining ingress takes new connections, while its health says no",
        alias="RAY_SERVE_PROXY_MIN_DRAINING_PERIOD_S",
    )
    hard_stop_after_s: float = setting(
        120.0,
        "PYSERVE_INGRESS_HARD_STOP_AFTER_S",
        read.seconds,
        "longest drain, whatever the deployments allow their calls",
        alias="RAY_SERVE_HAPROXY_HARD_STOP_AFTER_S",
    )
    cors_origins: tuple[str, ...] = setting(
        ("*",),
        "PYSERVE_INGRESS_CORS_ORIGINS",
        _origins,
        "origins of pages that may use gRPC-Web and Connect, and read refusals; `*`: all",
        shown="`*`",
    )
    trusted_proxies: tuple[str, ...] = setting(
        (),
        "PYSERVE_TRUSTED_PROXIES",
        _trusted,
        "networks of proxies whose reports of client addresses are trusted",
        shown="none",
    )
    proxy_protocol: bool = setting(
        False,
        "PYSERVE_PROXY_PROTOCOL",
        _speaks_proxy_protocol,
        "`v2`: connections of trusted proxies begin with a header of the PROXY protocol, version 2",
        shown="`off`",
    )


VARIABLES = variables_of(IngressSettings)
# That of NodeSettings is shown with those of the ingress.
ALIASES = (
    aliases(VARIABLES.values())
    | _DIRECT_ALIASES
    | {"PYSERVE_BIND_HOST": "RAY_SERVE_DEFAULT_HTTP_HOST"}
)


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
    return IngressSettings(**read_declared(IngressSettings, variables))


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
