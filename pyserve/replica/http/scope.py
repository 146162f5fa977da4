"""A plain HTTP request as ASGI has it: a scope, ``receive`` and ``send``.

For what speaks ASGI itself: Starlette's requests and responses. Nothing here starts an
application.
"""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

if TYPE_CHECKING:
    from pyserve.aio import HttpCall

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]

_PORTS = {"http": 80, "https": 443}


def scope_of(http: HttpCall) -> Scope:
    """Return the scope of a request (ASGI 3, HTTP messages 2.4)."""
    head = http.head
    path, _, query = head.target.partition(b"?")
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.4"},
        "http_version": head.version,
        "method": head.method,
        "scheme": head.scheme,
        "path": unquote(path.decode("latin-1")),
        "raw_path": path,
        "query_string": query,
        "root_path": head.root_path,
        "headers": http.headers,
        "client": head.client,
        "server": _server_of(http),
        "state": {},
    }


def _server_of(http: HttpCall) -> tuple[str, int] | None:
    host = http.header(b"host")
    if not host:
        return None
    name, _, port = host.decode("latin-1").rpartition(":")
    if name and port.isdecimal():
        return name, int(port)
    return host.decode("latin-1"), _PORTS.get(http.head.scheme, 0)


class Channel:
    """``receive`` and ``send`` of one request."""

    __slots__ = ("_http", "_is_read", "_status")

    def __init__(self, http: HttpCall) -> None:
        self._http = http
        self._is_read = False
        self._status: tuple[int, list[tuple[bytes, bytes]]] | None = None

    async def receive(self) -> Message:
        """Return the next piece of the body, and after its end that the client has gone."""
        http = self._http
        if self._is_read:
            await http.disconnected()
            return {"type": "http.disconnect"}
        from pyserve.aio import ClientDisconnected

        is_whole = http.whole_body is not None
        try:
            piece = await http.read()
        except ClientDisconnected:
            self._is_read = True
            return {"type": "http.disconnect"}
        self._is_read = is_whole or not piece
        return {"type": "http.request", "body": piece, "more_body": not self._is_read}

    async def send(self, message: Mapping[str, Any]) -> None:
        """Take one message of the answer; waits while the client does not read.

        A head is kept until the first piece: an answer of one piece leaves as a whole.

        Raises:
            ClientDisconnected: Nobody reads any more.
        """
        kind = message["type"]
        http = self._http
        if kind == "http.response.start":
            headers = [(bytes(n).lower(), bytes(v)) for n, v in message.get("headers", ())]
            self._status = message["status"], headers
            return
        if kind != "http.response.body":
            return  # What servers may offer and this one does not.
        body = bytes(message.get("body", b""))
        more = message.get("more_body", False)
        if self._status is not None:
            status, self._status = self._status, None
            if not more:
                http.respond(*status, body)
                return
            http.start(*status)
        await http.write(body)
        if not more:
            http.end()
