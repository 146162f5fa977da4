"""The conversations over WebSockets: each one is held with both servers."""

from __future__ import annotations

from tests.contract.fastapi.conversation import Script

_LONG = "größer " * 100_000  # 800 KB

SCRIPTS = {
    "text and bytes": Script(
        "/ws/echo", [("send", "text"), ("read",), ("send", b"\x00\xff"), ("read",), ("close",)]
    ),
    "without compression": Script(
        "/ws/echo", [("send", "text"), ("read",), ("close",)], compression=None
    ),
    "fragments": Script(
        "/ws/echo",
        [
            ("send", ["one ", "two ", "three"]),
            ("read",),
            ("send", [b"1", b"2"]),
            ("read",),
            ("close",),
        ],
    ),
    "empty messages": Script(
        "/ws/echo", [("send", ""), ("read",), ("send", b""), ("read",), ("close",)]
    ),
    "long messages": Script("/ws/echo", [("send", _LONG), ("read",), ("close",)]),
    "long messages, uncompressed": Script(
        "/ws/echo", [("send", _LONG.encode()), ("read",), ("close",)], compression=None
    ),
    "message that is too large": Script("/ws/echo", [("send", "x" * (16 * 1024 * 1024 + 1))]),
    "many at once": Script(
        "/ws/echo",
        [*[("send", str(number)) for number in range(200)], *[("read",)] * 200, ("close",)],
    ),
    "ping": Script("/ws/echo", [("ping",), ("send", "after"), ("read",), ("ping",), ("close",)]),
    "close of the client": Script("/ws/echo", [("close", 4321, "had enough")]),
    "close of the server": Script("/ws/greet/Ann?times=3"),
    "query that is wrong": Script("/ws/greet/Ann?times=0"),
    "path that needs decoding": Script("/ws/greet/A%20%C3%B6"),
    "subprotocol": Script("/ws/protocols", subprotocols=["chat.v1", "chat.v2"]),
    "no subprotocol in common": Script("/ws/protocols", subprotocols=["chat.v1"]),
    "scope": Script("/ws/scope?a=b"),
    "dependency": Script("/ws/guarded?key=k"),
    "dependency that refuses": Script("/ws/guarded"),
    "refused": Script("/ws/refused"),
    "denied with an answer": Script("/ws/denied"),
    "neither accepted nor refused": Script("/ws/silent"),
    "unknown route": Script("/ws/nowhere"),
    "failure after the handshake": Script("/ws/broken", [("send", "go")]),
    "failure before the handshake": Script("/ws/broken-early"),
    "end without a close": Script("/ws/leaves"),
}

# uvicorn sends no close where the application has sent none, and its clients see a broken
# connection.
CLOSED_HERE = {
    "failure after the handshake": (1011, ""),
    "end without a close": (1000, ""),
}
