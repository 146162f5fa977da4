"""Bodies of JSON that are laborious to convert, by every way that takes JSON or text."""

from __future__ import annotations

import base64
import itertools
from collections.abc import Callable, Iterator

_SERVICE = "/things.v1.Things/"
_ENTRIES = 200_000


def _joined(make: Callable[[int], str], count: int = _ENTRIES) -> str:
    return ",".join(make(index) for index in range(count))


# Each below the 4 MiB that a message may have, as a message too.
_BODIES: dict[str, Callable[[], str]] = {
    "map": lambda: '{"sizes":{' + _joined(lambda index: f'"{index:06}":{index % 9}') + "}}",
    # Twice as long as a message.
    "struct": lambda: (
        '{"extra":{' + _joined(lambda index: f'"{index:06}":{index % 9}', _ENTRIES // 2) + "}}"
    ),
    "nesting": lambda: (
        '{"parts":[' + _joined(lambda _: '{"inner":' * 90 + "{}" + "}" * 90, 4000) + "]}"
    ),
    "list": lambda: '{"parts":[' + _joined(lambda _: "{}", 1_000_000) + "]}",
    "escapes": lambda: '{"name":"' + "\\u00e9" * 600_000 + '"}',
}


def _post(path: str, content_type: str, body: bytes) -> bytes:
    head = (
        f"POST {path} HTTP/1.1\r\nhost: test\r\ncontent-type: {content_type}\r\n"
        f"content-length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


def _envelope(message: bytes) -> bytes:
    return b"\0" + len(message).to_bytes(4, "big") + message


def _connect(body: bytes) -> bytes:
    return _post(_SERVICE + "Echo", "application/json", body)


def _rest(body: bytes) -> bytes:
    return _post("/v1/echo/again:again", "application/json", body)


def _stream(body: bytes) -> bytes:
    return _post(_SERVICE + "Chat", "application/connect+json", _envelope(body))


def _small_messages() -> bytes:
    return _post(_SERVICE + "Collect", "application/connect+json", _envelope(b"{}") * 500_000)


def _web_text() -> bytes:
    text = base64.b64encode(_envelope(b"") * 500_000)
    return _post(_SERVICE + "Collect", "application/grpc-web-text", text)


def _again(make: Callable[[], bytes]) -> Callable[[], Iterator[bytes]]:
    # Made when the attack begins, which is in the attacker's process.
    return lambda: itertools.repeat(make())


def _of_body(way: Callable[[bytes], bytes], make: Callable[[], str]) -> Callable[[], bytes]:
    return lambda: way(make().encode())


# An attack each.
SENDERS: dict[str, Callable[[], Iterator[bytes]]] = {
    **{
        f"{body}_by_{name}": _again(_of_body(way, make))
        for name, way in {"connect": _connect, "rest": _rest, "stream": _stream}.items()
        for body, make in _BODIES.items()
    },
    "small_messages": _again(_small_messages),
    "web_text": _again(_web_text),
}
