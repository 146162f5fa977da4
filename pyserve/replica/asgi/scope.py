"""The types of ASGI, and the scope of a request: uvicorn's, with the prefix as root path."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeAlias
from urllib.parse import unquote_to_bytes

if TYPE_CHECKING:
    from pyserve.aio import HttpCall, HttpFields

_PORT_MAX = 65535
_PORT_DIGITS_MAX = len(str(_PORT_MAX))
_DEFAULT_PORTS = {"http": 80, "https": 443}
# The ingress takes away what is about the connection, and over HTTP/2 a handshake has none of it.
# Under uvicorn, hypercorn and granian applications find these, and some (Socket.IO) ask for them.
_HANDSHAKE = ((b"upgrade", b"websocket"), (b"connection", b"Upgrade"))
# Host names that clients have used lately: a handful, unless a client makes them up (arbitrary).
_HOSTS_KEPT = 64


def http_scope(call: HttpCall, state: dict[str, Any]) -> Scope:
    """Return the scope of a plain request; ``state`` is what the lifespan has left."""
    return scope_of(call.head_fields(), state)


def scope_of(fields: HttpFields, state: dict[str, Any]) -> Scope:
    """Return the scope of a plain request whose head has been read."""
    _, method, path, raw_path, query, version, scheme, client, root_path, headers = fields
    return {
        "type": "http",
        # The version that uvicorn names; applications choose by it how they watch the client.
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": version,
        "server": _server(_host(headers), scheme),
        "client": client,
        "scheme": scheme,
        "method": method,
        "root_path": root_path,
        # As most clients, it may have sent UTF-8 that it has not encoded.
        "path": path if path.isascii() and "%" not in path else _decoded(raw_path),
        "raw_path": raw_path,
        "query_string": query,
        "headers": headers,
        "state": state.copy(),
        "extensions": {"http.response.pathsend": {}},
    }


def _decoded(raw_path: bytes) -> str:
    return unquote_to_bytes(raw_path).decode("utf-8", "replace")


def websocket_scope(call: HttpCall, state: dict[str, Any]) -> Scope:
    """Return the scope of a WebSocket."""
    scope = http_scope(call, state)
    scope["type"] = "websocket"
    scope["asgi"]["spec_version"] = "2.4"
    scope["scheme"] = "wss" if scope["scheme"] == "https" else "ws"
    del scope["method"]
    # A new list: the call's own says what came.
    scope["headers"] = [*_HANDSHAKE, *scope["headers"]]
    scope["subprotocols"] = tokens(scope["headers"], b"sec-websocket-protocol")
    scope["extensions"] = {"websocket.http.response": {}}
    return scope


def tokens(headers: list[tuple[bytes, bytes]], name: bytes) -> list[str]:
    """Return the comma-separated values of all headers called ``name``."""
    parts = [part for value in values_of(headers, name) for part in value.split(b",")]
    return [part.strip().decode("latin-1") for part in parts if part.strip()]


def values_of(headers: list[tuple[bytes, bytes]], name: bytes) -> list[bytes]:
    """Return the values of all headers called ``name``."""
    return [value for key, value in headers if key == name]


def _host(headers: list[tuple[bytes, bytes]]) -> bytes:
    for key, value in headers:
        if key == b"host":
            return value
    return b""


@lru_cache(_HOSTS_KEPT)
def _server(host: bytes, scheme: str) -> tuple[str, int] | None:
    """Return the host that the client has addressed: the replica does not know the ingress's."""
    text = host.decode("latin-1")
    name, separator, port = text.rpartition(":")
    if not separator or port.endswith("]"):
        name, port = text, ""
    if not name:
        return None
    is_port = port.isascii() and port.isdigit() and len(port) <= _PORT_DIGITS_MAX
    number = int(port) if is_port else _PORT_MAX + 1
    return name.strip("[]"), number if number <= _PORT_MAX else _DEFAULT_PORTS.get(scheme, 80)


# The types of ASGI's interface; version 3 of the specification.

Message: TypeAlias = "MutableMapping[str, Any]"
Scope: TypeAlias = "MutableMapping[str, Any]"
Receive: TypeAlias = "Callable[[], Awaitable[Message]]"
Send: TypeAlias = "Callable[[Message], Awaitable[None]]"
Application: TypeAlias = "Callable[[Scope, Receive, Send], Awaitable[Any]]"
