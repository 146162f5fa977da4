"""A client that speaks HTTP/2 and nothing above it: no timer, no check, no status of its own.

Its reports come from the wire, so they can show when and how the mesh itself answered.
"""

import asyncio
import gzip
import time
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import h2.config
import h2.connection
import h2.events
import h2.settings

Headers = Iterable[tuple[str, str]]
# Enough for every answer of a test that does read.
_WINDOW_BYTES = 16 * 1024 * 1024


def frame(message: bytes, *, compressed: bool = False) -> bytes:
    """Return a message with its length and flag in front, as gRPC sends it."""
    body = gzip.compress(message) if compressed else message
    return bytes([compressed]) + len(body).to_bytes(4, "big") + body


@dataclass
class RawCall:
    """One stream: what came so far, and when it began and ended (``time.monotonic``)."""

    stream_id: int
    begun_s: float
    ended_s: float = 0.0
    headers: dict[str, str] = field(default_factory=dict)
    trailers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    is_reset: bool = False
    ended: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def status(self) -> int:
        """The gRPC status; of a Trailers-Only answer it stands in the headers."""
        return int((self.headers | self.trailers)["grpc-status"])

    @property
    def message(self) -> str:
        """The text of the status, percent-encoded as it came."""
        return (self.headers | self.trailers).get("grpc-message", "")

    async def end(self) -> "RawCall":
        """Wait for the end of the answer, which was no reset."""
        async with asyncio.timeout(30):
            await self.ended.wait()
        assert not self.is_reset, f"stream {self.stream_id} was reset"
        return self


class RawClient(asyncio.Protocol):
    """One connection.

    Args:
        reads: Give window back for what came. Without it, a server may send as much as the
            initial windows allow, and then waits for this reader.
    """

    def __init__(self, *, reads: bool = True) -> None:
        self._reads = reads
        config = h2.config.H2Configuration(client_side=True, header_encoding="utf-8")
        self._h2 = h2.connection.H2Connection(config)
        self._calls: dict[int, RawCall] = {}
        self.received_bytes = 0

    def start(
        self, path: str, *messages: bytes, headers: Headers = (), end: bool = True
    ) -> RawCall:
        """Send headers and message frames of one call.

        Args:
            path: The method.
            messages: Sent one after the other, framed already.
            headers: Added to those that make a gRPC request, or in place of them.
            end: Half-close.
        """
        stream_id = self._h2.get_next_available_stream_id()
        given = {
            ":method": "POST",
            ":scheme": "http",
            ":authority": "test",
            ":path": path,
            "te": "trailers",
            "content-type": "application/grpc",
            **dict(headers),
        }
        call = self._calls[stream_id] = RawCall(stream_id, time.monotonic())
        body = b"".join(messages)
        self._h2.send_headers(stream_id, list(given.items()), end_stream=end and not body)
        if body:
            self._h2.send_data(stream_id, body, end_stream=end)
        self._flush()
        return call

    def send(self, call: RawCall, *messages: bytes, end: bool) -> None:
        """Send more of a call that is not half-closed."""
        self._h2.send_data(call.stream_id, b"".join(messages), end_stream=end)
        self._flush()

    def reset(self, call: RawCall) -> None:
        """Cancel a call."""
        self._h2.reset_stream(call.stream_id, 8)
        self._flush()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self._h2.initiate_connection()
        if self._reads:
            settings: dict[h2.settings.SettingCodes | int, int] = {
                h2.settings.SettingCodes.INITIAL_WINDOW_SIZE: _WINDOW_BYTES
            }
            self._h2.update_settings(settings)
            self._h2.increment_flow_control_window(_WINDOW_BYTES)
        self._flush()

    def data_received(self, data: bytes) -> None:
        now_s = time.monotonic()
        self.received_bytes += len(data)
        for event in self._h2.receive_data(data):
            self._on_event(event, now_s)
        self._flush()

    def connection_lost(self, exc: Exception | None) -> None:
        for call in self._calls.values():
            if not call.ended.is_set():
                call.is_reset = True
                call.ended.set()

    def _on_event(self, event: h2.events.Event, now_s: float) -> None:
        call = self._calls.get(getattr(event, "stream_id", None) or 0)
        if call is None:
            return
        match event:
            case h2.events.ResponseReceived(headers=headers):
                call.headers = dict(headers)  # type: ignore[arg-type]  # header_encoding
            case h2.events.TrailersReceived(headers=headers):
                call.trailers = dict(headers)  # type: ignore[arg-type]
            case h2.events.DataReceived(data=data, flow_controlled_length=length):
                if self._reads:
                    call.body += data
                    self._h2.acknowledge_received_data(length or 0, call.stream_id)
            case h2.events.StreamEnded() | h2.events.StreamReset():
                if not call.ended.is_set():
                    call.is_reset = isinstance(event, h2.events.StreamReset)
                    call.ended_s = now_s
                    call.ended.set()

    def _flush(self) -> None:
        self.transport.write(self._h2.data_to_send())


@asynccontextmanager
async def raw_client(address: str, *, reads: bool = True) -> AsyncIterator[RawClient]:
    """Connect to ``address`` ("host:port") until the block ends."""
    host, _, port = address.rpartition(":")
    loop = asyncio.get_running_loop()
    transport, client = await loop.create_connection(
        lambda: RawClient(reads=reads), host, int(port)
    )
    try:
        yield client
    finally:
        transport.close()
