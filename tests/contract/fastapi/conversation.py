"""One WebSocket and what both sides said, from the client's side."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection, connect
from websockets.typing import Subprotocol

from tests.contract.fastapi.exchange import HOST

_TIMEOUT_S = 20.0
_NOT_COMPARED = frozenset(
    {"date", "server", "x-request-id", "connection", "upgrade", "sec-websocket-accept"}
)


@dataclass(frozen=True)
class Script:
    """What a client does: ``("send", data)``, ``("read",)``, ``("ping",)``, ``("close", ...)``."""

    path: str
    steps: Sequence[tuple[Any, ...]] = ()
    subprotocols: Sequence[str] = ()
    compression: str | None = "deflate"


@dataclass
class Transcript:
    """The conversation as the client saw it."""

    status: int = 101
    headers: list[tuple[str, str]] = field(default_factory=list)
    body: bytes | None = None
    subprotocol: str | None = None
    received: list[Any] = field(default_factory=list)
    closed: tuple[int | None, str] | None = None


def converse(address: str, script: Script, prefix: str = "") -> Transcript:
    """Play ``script`` and read until the other side has closed."""
    transcript = Transcript()
    host, _, port = address.rpartition(":")
    try:
        connection = connect(
            f"ws://{HOST}{prefix}{script.path}",
            sock=socket.create_connection((host, int(port)), timeout=_TIMEOUT_S),
            subprotocols=[Subprotocol(each) for each in script.subprotocols] or None,
            compression=script.compression,
            open_timeout=_TIMEOUT_S,
            close_timeout=_TIMEOUT_S,
            max_size=None,
            proxy=None,
        )
    except InvalidStatus as refused:
        answer = refused.response
        transcript.status, transcript.body = answer.status_code, bytes(answer.body)
        transcript.headers = _compared(answer.headers.raw_items())
        return transcript
    with connection:
        assert connection.response is not None
        transcript.headers = _compared(connection.response.headers.raw_items())
        transcript.subprotocol = connection.subprotocol
        _play(connection, script, transcript)
    return transcript


def _play(connection: ClientConnection, script: Script, transcript: Transcript) -> None:
    try:
        for step, *values in script.steps:
            if step == "send":
                connection.send(*values)
            elif step == "read":
                transcript.received.append(connection.recv(_TIMEOUT_S))
            elif step == "ping":
                assert connection.ping().wait(_TIMEOUT_S)
            elif step == "close":
                connection.close(*values)
            else:
                raise AssertionError(f"no such step: {step}")
        while True:
            transcript.received.append(connection.recv(_TIMEOUT_S))
    except ConnectionClosed:
        transcript.closed = (connection.close_code, connection.close_reason or "")


def _compared(headers: Any) -> list[tuple[str, str]]:
    lowered = [(name.lower(), value) for name, value in headers]
    return sorted(each for each in lowered if each[0] not in _NOT_COMPARED)
