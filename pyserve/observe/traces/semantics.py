"""Names and values of the semantic conventions, release 1.44.0, as spans of calls have them.

RPC: opentelemetry.io/docs/specs/semconv/rpc (release candidate); HTTP: .../http. What they have no
word for is called ``pyserve.…``.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping

SCHEMA_URL = "https://opentelemetry.io/schemas/1.44.0"

RPC_SYSTEM = "rpc.system.name"
RPC_METHOD = "rpc.method"
RPC_STATUS = "rpc.response.status_code"
HTTP_METHOD = "http.request.method"
HTTP_METHOD_ORIGINAL = "http.request.method_original"
HTTP_ROUTE = "http.route"
HTTP_STATUS = "http.response.status_code"
ERROR_TYPE = "error.type"

GRPC = "grpc"
_METHODS = frozenset(
    {"CONNECT", "DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT", "QUERY", "TRACE"}
)
# The lowest status that is an error of a server; what a client did wrong is no error of its.
_HTTP_ERROR_MIN = 500
_HTTP_CLIENT_ERROR_MIN = 400
# Of requests whose clients have left, which no client ever sees.
_LEFT = 499

# By gRPC's number.
CODES = (
    "OK",
    "CANCELLED",
    "UNKNOWN",
    "INVALID_ARGUMENT",
    "DEADLINE_EXCEEDED",
    "NOT_FOUND",
    "ALREADY_EXISTS",
    "PERMISSION_DENIED",
    "RESOURCE_EXHAUSTED",
    "FAILED_PRECONDITION",
    "ABORTED",
    "OUT_OF_RANGE",
    "UNIMPLEMENTED",
    "INTERNAL",
    "UNAVAILABLE",
    "DATA_LOSS",
    "UNAUTHENTICATED",
)

Attributes = Mapping[str, str | int | float | bool]


def code_name(number: int) -> str:
    """Return gRPC's name of a code."""
    return CODES[number] if 0 <= number < len(CODES) else "UNKNOWN"


def rpc_attributes(path: str) -> dict[str, str | int]:
    """Return what a span of the call of ``/package.Service/Method`` begins with."""
    return {RPC_SYSTEM: GRPC, RPC_METHOD: path.removeprefix("/")}


def http_attributes(method: str, route: str) -> dict[str, str | int]:
    """Return what a span of a request of plain HTTP begins with."""
    if method in _METHODS:
        return {HTTP_METHOD: method, HTTP_ROUTE: route}
    return {HTTP_METHOD: "_OTHER", HTTP_METHOD_ORIGINAL: method, HTTP_ROUTE: route}


def http_name(method: str, route: str) -> str:
    """Return the name of such a span."""
    return f"{method if method in _METHODS else 'HTTP'} {route}"


def rpc_end(number: int) -> dict[str, str | int]:
    """Return what the end of a call adds; every code but OK is an error."""
    name = code_name(number)
    return {RPC_STATUS: name} if number == 0 else {RPC_STATUS: name, ERROR_TYPE: name}


def http_end(status: int, *, is_client: bool = False) -> dict[str, str | int]:
    """Return what the head of an answer adds to the span of a server, or of a client."""
    found: dict[str, str | int] = {HTTP_STATUS: status}
    if status >= (_HTTP_CLIENT_ERROR_MIN if is_client else _HTTP_ERROR_MIN) or status == _LEFT:
        found[ERROR_TYPE] = str(status)
    return found


def peer_attributes(peer: str) -> dict[str, str | int]:
    """Return what is said of a peer: ``ipv4:127.0.0.1:1``, ``unix:``, or host and port."""
    if peer.startswith("unix:"):
        return {"network.transport": "unix"}
    host, _, port = peer.removeprefix("ipv4:").removeprefix("ipv6:").rpartition(":")
    host = host.strip("[]")
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return {}
    found: dict[str, str | int] = {"network.transport": "tcp", "network.peer.address": host}
    if port.isdigit():
        found["network.peer.port"] = int(port)
    return found
