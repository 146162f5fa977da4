"""An in-memory stand-in for the native endpoint, server and calls.

It has the methods that ``pyserve/_router.pyi`` declares and records what was queued, so that
tests decide when events come and see every command. What the native side does beyond that
(HTTP/2, credit, deadlines) is tested against the real one in tests/contract/aio.
"""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass, field
from typing import Any

from pyserve import _router
from pyserve.bridge import OpenFile

Command = tuple[Any, ...]
_HTTP = "plain HTTP"


class FakeEndpoint:
    """Events in a list, wake-ups by a real eventfd, as the native endpoint does it."""

    made: list[FakeEndpoint]

    def __init__(self) -> None:
        self._fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._events: list[tuple[int, int, object, object]] = []
        self._armed = False
        self.closed = False
        self.dirty = False
        self.flushes = 0
        self.wakeups = 0

    def push(self, kind: int, token: int, subject: object = None, payload: object = None) -> None:
        self._events.append((kind, token, subject, payload))
        if self._armed:
            self._armed = False
            self.wakeups += 1
            os.eventfd_write(self._fd, 1)

    def note(self) -> bool:
        """Note a queued command; what every command of a call returns."""
        first = not self.dirty
        self.dirty = True
        return first

    @property
    def waiting(self) -> int:
        """How many events were not taken yet."""
        return len(self._events)

    def fileno(self) -> int:
        return self._fd

    def drain(self, limit: int) -> list[tuple[int, int, object, object]]:
        taken = self._events[:limit]
        del self._events[:limit]
        return taken

    def arm(self) -> bool:
        with contextlib.suppress(BlockingIOError):  # nobody rang
            os.eventfd_read(self._fd)
        self._armed = not self._events
        return self._armed

    def flush(self) -> None:
        self.dirty = False
        self.flushes += 1

    def close(self) -> None:
        self.closed = True

    def __del__(self) -> None:
        # Not before: children that are forked until then put something else in its place.
        os.close(self._fd)

    def stats(self) -> dict[str, int]:
        return {"wakeups": self.wakeups, "flushes": self.flushes}


@dataclass
class FakeHttpHead:
    """The head of a plain HTTP request."""

    method: str = "POST"
    target: bytes = b"/"
    version: str = "1.1"
    scheme: str = "http"
    client: tuple[str, int] | None = ("127.0.0.1", 1)
    root_path: str = ""
    is_websocket: bool = False
    headers: list[tuple[bytes, bytes]] = field(default_factory=list)

    def fields(self) -> tuple[Any, ...]:
        path, _, query = self.target.partition(b"?")
        told = (self.version, self.scheme, self.client, self.root_path, self.headers)
        return (self.is_websocket, self.method, path.decode("latin-1"), path, query, *told)


class FakeServerCall:
    """One incoming call; ``commands`` lists what the handler queued."""

    def __init__(self, endpoint: FakeEndpoint, token: int, method: int, path: str) -> None:
        self.endpoint = endpoint
        self.token = token
        self.method = method
        self.path = path
        self.host = "test"
        self.framed = False
        self.traceparent = ""
        self.span = None
        self.is_asked = False
        self.peer = "ipv4:127.0.0.1:1"
        self.commands: list[Command] = []
        self.taken_bytes = 0
        self.room = True
        self.file_error: str | None = None
        self.remaining_s: float | None = None
        self.head = FakeHttpHead()

    def metadata(self) -> tuple[tuple[str, str | bytes], ...]:
        return (("user-agent", "fake"),)

    def http_head(self) -> FakeHttpHead:
        return self.head

    def http_fields(self) -> tuple[Any, ...]:
        return self.head.fields()

    def respond(self, status: int, headers: Any, body: bytes) -> bool:
        return self._queue("respond", status, tuple(headers), body)

    def start_response(self, status: int, headers: Any) -> bool:
        return self._queue("start_response", status, tuple(headers))

    def auth_context(self) -> dict[str, list[bytes]]:
        return {}

    def time_remaining(self) -> float | None:
        return self.remaining_s

    def is_active(self) -> bool:
        return not any(command[0] in ("reply", "respond", "finish") for command in self.commands)

    def reply(self, message: bytes) -> bool:
        return self._queue("reply", message)

    def send_initial_metadata(self, metadata: object, compression: int) -> bool:
        return self._queue("initial_metadata", metadata, compression)

    def write(self, message: bytes, compression: int) -> bool:
        return self._queue("write", message, compression)

    def send_file(self, file: OpenFile, offset: int, length: int) -> bool:
        file.close()
        return self._queue("send_file", offset, length)

    def writable(self) -> bool:
        return self.room

    def taken(self, size: int) -> bool:
        self.taken_bytes += size
        return self.endpoint.note()

    def finish(
        self, code: int, details: str, trailing_metadata: object, message: bytes | None
    ) -> bool:
        return self._queue("finish", code, details, trailing_metadata, message)

    def release(self) -> bool:
        return self._queue("release")

    def _queue(self, *command: Any) -> bool:
        self.commands.append(command)
        return self.endpoint.note()


class FakeServer:
    """The native server: ``call`` lets a call arrive."""

    def __init__(self, endpoint: FakeEndpoint, **options: Any) -> None:
        self.endpoint = endpoint
        self.options = options
        self.paths: dict[str, int] = {}
        self.state = "new"
        self._token = 1000

    def register(
        self,
        path: str,
        request_streaming: bool,
        response_streaming: bool,
        weight: int,
        **limits: object,
    ) -> int:
        self.paths[path] = len(self.paths)
        return self.paths[path]

    def register_http(self, *, weight: int = 1) -> int:
        return self.register(_HTTP, True, True, weight)

    def listen_tcp(self, address: str, tls: object, reuse_port: bool) -> int:
        return 1234

    def start(self) -> None:
        self.state = "serving"

    def drain(self) -> None:
        self.state = "draining"

    def stop(self) -> None:
        self.state = "stopped"

    def finish(self) -> bool:
        return True

    def in_flight(self) -> int:
        return 0

    def stats(self) -> dict[str, int]:
        return {"connections": 0}

    def request(self, body: bytes | None, head: FakeHttpHead) -> FakeServerCall:
        """Let a plain HTTP request arrive; without a body it comes as a stream."""
        call = self.call(_HTTP, body)
        call.head = head
        return call

    def call(self, path: str, message: bytes | None) -> FakeServerCall:
        self._token += 1
        call = FakeServerCall(self.endpoint, self._token, self.paths.get(path, -1), path)
        self.endpoint.push(_router.CALL, self._token, call, message)
        return call
