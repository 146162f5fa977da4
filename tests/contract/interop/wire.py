"""Which messages were compressed: a relay that reads what passes between client and server.

gRPC's interface in Python tells neither client nor handler whether a message came compressed,
and the compression cases are about just that. So a relay before the server reads the frames and
notes it: for the test, which asks the relay, and for the service, which asks a folder, because it
may live in another process.
"""

from __future__ import annotations

import contextlib
import hashlib
import zlib
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path

from google.protobuf.message import Message

from tests.support.relay import Tap, relay

# Names the folder of the log, for servers in other processes.
LOG_VARIABLE = "INTEROP_WIRE_LOG"

_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_FRAME_HEAD_BYTES = 9
_MESSAGE_HEAD_BYTES = 5
_DATA_FRAME = 0x0
_PADDED_FLAG = 0x8
_GZIP_OR_ZLIB = zlib.MAX_WBITS | 32


@dataclass(frozen=True)
class WireLog:
    """What the service may know: a folder with one file for each message that came."""

    folder: Path

    def note(self, message: bytes, *, compressed: bool) -> None:
        """Keep how this message came; the same bytes replace what was noted before."""
        self._file(message).write_text(str(int(compressed)))

    def was_compressed(self, message: Message) -> bool:
        """Say how the message came that was noted last.

        Raises:
            FileNotFoundError: No relay has seen it.
        """
        return self._file(message.SerializeToString(deterministic=True)).read_text() == "1"

    def _file(self, message: bytes) -> Path:
        return self.folder / hashlib.sha256(message).hexdigest()


@dataclass
class Wire:
    """The gRPC messages that passed so far, as their flags: whether each was compressed.

    Attributes:
        address: Where the relay listens, "host:port".
        requests: Messages to the server, in the order in which they were complete.
        responses: Messages to the client.
    """

    address: str = ""
    requests: list[bool] = field(default_factory=list)
    responses: list[bool] = field(default_factory=list)


@contextlib.asynccontextmanager
async def watched(target: str, log: WireLog) -> AsyncIterator[Wire]:
    """Listen on a free port, pass every connection on to ``target``, and read what passes."""
    wire = Wire()

    def on_request(flag: bool, message: bytes) -> None:
        log.note(message, compressed=flag)
        wire.requests.append(flag)

    def on_response(flag: bool, _message: bytes) -> None:
        wire.responses.append(flag)

    def taps() -> tuple[Tap, Tap]:
        return FrameReader(on_request, preface=_PREFACE).feed, FrameReader(on_response).feed

    async with relay(target, taps) as wire.address:
        yield wire


class FrameReader:
    """Finds the gRPC messages in one direction of one HTTP/2 connection.

    Args:
        on_message: Told of each message: whether it was compressed, and its plain bytes.
        preface: What comes before the first frame.
    """

    def __init__(self, on_message: Callable[[bool, bytes], None], *, preface: bytes = b"") -> None:
        self._on_message = on_message
        self._preface = preface
        self._buffer = b""
        self._bodies: dict[int, bytes] = {}

    def feed(self, data: bytes) -> None:
        """Take what came, in pieces of any size."""
        self._buffer += data
        if self._preface:
            if len(self._buffer) < len(self._preface):
                return
            assert self._buffer.startswith(self._preface), self._buffer[:64]
            self._buffer = self._buffer[len(self._preface) :]
            self._preface = b""
        while len(self._buffer) >= _FRAME_HEAD_BYTES:
            end = _FRAME_HEAD_BYTES + int.from_bytes(self._buffer[:3], "big")
            if len(self._buffer) < end:
                return
            frame, self._buffer = self._buffer[:end], self._buffer[end:]
            self._on_frame(frame)

    def _on_frame(self, frame: bytes) -> None:
        kind, flags, payload = frame[3], frame[4], frame[_FRAME_HEAD_BYTES:]
        if kind != _DATA_FRAME:
            return
        if flags & _PADDED_FLAG:
            payload = payload[1 : len(payload) - payload[0]]
        stream = int.from_bytes(frame[5:9], "big")
        self._bodies[stream] = self._messages(self._bodies.get(stream, b"") + payload)

    def _messages(self, body: bytes) -> bytes:
        """Report every whole message of ``body``, and return the bytes after them."""
        while len(body) >= _MESSAGE_HEAD_BYTES:
            end = _MESSAGE_HEAD_BYTES + int.from_bytes(body[1:_MESSAGE_HEAD_BYTES], "big")
            if len(body) < end:
                break
            flag, message, body = bool(body[0]), body[_MESSAGE_HEAD_BYTES:end], body[end:]
            self._on_message(flag, zlib.decompress(message, _GZIP_OR_ZLIB) if flag else message)
        return body
