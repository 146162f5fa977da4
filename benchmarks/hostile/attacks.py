"""Attacks: generators of what one hostile connection sends, and how it behaves besides.

Each is bytes made ahead and sent in a loop, so that the attacker is fast and the mesh is what the
time goes into.
"""

from __future__ import annotations

import gzip
import itertools
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from benchmarks.hostile import http2, json_bodies, web_sockets
from benchmarks.hostile.http2 import END_HEADERS, END_STREAM, GRPC, Kind, frame, greeting, request

ECHO = "/services.echo.Echo/Echo"
STREAM = "/services.echo.Echo/EchoStream"
COLLECT = "/services.echo.Echo/Collect"
PLAIN = "/plain"
DEPLOY = "/pyserve.wire.v1.Control/Deploy"
# The size of the plain application's answer to a request for a large one.
LARGE_BYTES = 8 << 20

_BATCH = 256
_STREAM_IDS_MAX = 2**31 - 1
_HALF_KIB = "x" * 512


@dataclass(frozen=True, kw_only=True)
class Attack:
    """One kind of hostile connection.

    Attributes:
        send: Makes the pieces that a connection sends, in order; when they end, it waits to be
            closed and sends nothing more.
        connections: How many there are at once.
        reopens: One that was closed is opened again.
        reads: Takes what comes back. Without it the answers stay in the socket.
        piece_interval_s: Pause before each piece.
        neighbour: The path of whoever is asked meanwhile; what is attacked, where that is Python's.
        on_controller: It comes over the port that the controller has for other machines.
    """

    send: Callable[[], Iterator[bytes]]
    connections: int = 1
    reopens: bool = True
    reads: bool = True
    piece_interval_s: float = 0.0
    neighbour: str = PLAIN
    on_controller: bool = False


def _in_batches(make: Callable[[int], bytes]) -> Iterator[bytes]:
    """Join what is made for stream 1, 3, 5 and so on."""
    for first in range(1, _STREAM_IDS_MAX - 2 * _BATCH, 2 * _BATCH):
        yield b"".join(make(first + 2 * index) for index in range(_BATCH))


def _rapid_reset() -> Iterator[bytes]:
    yield greeting()
    yield from _in_batches(
        lambda stream_id: (
            request(stream_id, "POST", ECHO, GRPC, end=False)
            + frame(Kind.RST_STREAM, 0, stream_id, b"\0\0\0\x08")
        )
    )


def _rapid_reset_of_plain() -> Iterator[bytes]:
    yield greeting()
    yield from _in_batches(
        lambda stream_id: (
            request(stream_id, "GET", PLAIN) + frame(Kind.RST_STREAM, 0, stream_id, b"\0\0\0\x08")
        )
    )


def _made_you_reset() -> Iterator[bytes]:
    """Make the server reset: a window update of nothing is an error of its stream."""
    yield greeting()
    yield from _in_batches(
        lambda stream_id: (
            request(stream_id, "POST", ECHO, GRPC, end=False)
            + frame(Kind.WINDOW_UPDATE, 0, stream_id, b"\0\0\0\0")
        )
    )


def _continuation() -> Iterator[bytes]:
    yield greeting() + frame(Kind.HEADERS, END_STREAM, 1, http2.block("GET", PLAIN))
    yield from itertools.repeat(frame(Kind.CONTINUATION, 0, 1, b"\0\1a\1b" * 200) * 16)


def _empty_continuation() -> Iterator[bytes]:
    yield greeting() + frame(Kind.HEADERS, END_STREAM, 1, http2.block("GET", PLAIN))
    yield from itertools.repeat(frame(Kind.CONTINUATION, 0, 1) * _BATCH)


def _pings() -> Iterator[bytes]:
    yield greeting()
    yield from itertools.repeat(frame(Kind.PING, 0, 0, b"12345678") * _BATCH)


def _settings() -> Iterator[bytes]:
    yield greeting()
    window = struct.pack(">HI", 4, 65_535)
    yield from itertools.repeat(frame(Kind.SETTINGS, 0, 0, window) * _BATCH)


def _window_updates() -> Iterator[bytes]:
    """Give room that nobody wants, while a call goes on that is not answered before it ends."""
    yield greeting() + request(1, "POST", COLLECT, GRPC, end=False)
    yield from itertools.repeat(frame(Kind.WINDOW_UPDATE, 0, 0, b"\0\0\0\x01") * _BATCH)


def _one_byte_data() -> Iterator[bytes]:
    yield greeting() + request(1, "POST", COLLECT, GRPC, end=False)
    yield frame(Kind.DATA, 0, 1, b"\0\0\x10\0\0")
    yield from itertools.repeat(frame(Kind.DATA, 0, 1, b"x") * _BATCH)


def _empty_data() -> Iterator[bytes]:
    yield greeting() + request(1, "POST", COLLECT, GRPC, end=False)
    yield from itertools.repeat(frame(Kind.DATA, 0, 1) * _BATCH)


def _unread_streams() -> Iterator[bytes]:
    """Ask for much on many streams, and take nothing of it."""
    yield greeting({4: 0})
    path = f"{PLAIN}?bytes={LARGE_BYTES}"
    yield b"".join(request(stream_id, "GET", path) for stream_id in range(1, 201, 2))


def _unread_answers() -> Iterator[bytes]:
    text = f"GET {PLAIN}?bytes={LARGE_BYTES} HTTP/1.1\r\nhost: test\r\n\r\n"
    yield text.encode()


def _pipeline() -> Iterator[bytes]:
    yield from itertools.repeat(f"GET {PLAIN} HTTP/1.1\r\nhost: test\r\n\r\n".encode() * _BATCH)


def _slow_heads() -> Iterator[bytes]:
    yield f"GET {PLAIN} HTTP/1.1\r\nhost: test\r\n".encode()
    yield from itertools.repeat(b"x-a: b\r\n")


def _slow_bodies() -> Iterator[bytes]:
    yield f"POST {PLAIN} HTTP/1.1\r\nhost: test\r\ncontent-length: 1000000\r\n\r\n".encode()
    yield from itertools.repeat(b"x")


def _slow_bodies_of_streams() -> Iterator[bytes]:
    streams = range(1, 201, 2)
    yield greeting() + b"".join(request(stream, "POST", PLAIN, end=False) for stream in streams)
    yield from itertools.repeat(b"".join(frame(Kind.DATA, 0, one, b"x") for one in streams))


def _one_byte_chunks() -> Iterator[bytes]:
    head = f"POST {PLAIN} HTTP/1.1\r\nhost: test\r\ntransfer-encoding: chunked\r\n\r\n"
    yield head.encode()
    yield from itertools.repeat(b"1\r\nx\r\n" * _BATCH)


def _chunk_extensions() -> Iterator[bytes]:
    head = f"POST {PLAIN} HTTP/1.1\r\nhost: test\r\ntransfer-encoding: chunked\r\n\r\n1;a="
    yield head.encode()
    yield from itertools.repeat(b"x" * 16_384)


def _long_heads() -> Iterator[bytes]:
    yield f"GET {PLAIN} HTTP/1.1\r\nhost: test\r\n".encode()
    yield from itertools.repeat(f"x-a: {_HALF_KIB}\r\n".encode() * 32)


def _hpack_bomb() -> Iterator[bytes]:
    """One header of 3.5 KiB in the table, then a byte for each repetition."""
    # With incremental indexing, where `block` writes without.
    entry = b"\x40" + http2.literal("x-bomb", _HALF_KIB * 7)[1:]
    head = http2.block("GET", PLAIN)
    yield greeting() + frame(Kind.HEADERS, END_HEADERS | END_STREAM, 1, head + entry)
    yield from _in_batches(
        lambda stream_id: frame(
            Kind.HEADERS, END_HEADERS | END_STREAM, stream_id + 2, head + b"\xbe" * 8000
        )
    )


def _body_bombs() -> Iterator[bytes]:
    """Messages of 16 KiB that are 16 MiB when inflated."""
    bomb = gzip.compress(bytes(16 << 20))
    message = b"\1" + len(bomb).to_bytes(4, "big") + bomb
    headers = (*GRPC, ("grpc-encoding", "gzip"))
    pieces = [message[at : at + 16_000] for at in range(0, len(message), 16_000)]
    yield greeting({4: 1 << 20})
    for stream_id in range(1, _STREAM_IDS_MAX, 2):
        last = len(pieces) - 1
        yield request(stream_id, "POST", ECHO, headers, end=False) + b"".join(
            frame(Kind.DATA, END_STREAM if index == last else 0, stream_id, piece)
            for index, piece in enumerate(pieces)
        )
        # All of the connection's window at once would only wait.
        yield frame(Kind.WINDOW_UPDATE, 0, 0, (1 << 20).to_bytes(4, "big"))


def _idle_of_http1() -> Iterator[bytes]:
    """Ask once and never again."""
    yield f"GET {PLAIN} HTTP/1.1\r\nhost: test\r\n\r\n".encode()


def _idle_of_http2() -> Iterator[bytes]:
    """Greet and say nothing more, not even when the mesh asks it to go."""
    yield greeting()


def _silent() -> Iterator[bytes]:
    """Say nothing at all."""
    return iter(())


def _open_and_close() -> Iterator[bytes]:
    yield f"GET {PLAIN} HTTP/1.1\r\nhost: test\r\nconnection: close\r\n\r\n".encode()


def _bodies_without_a_token() -> Iterator[bytes]:
    """Deploys of hundreds of MiB, each as far as the window of a stream lets it through."""
    yield greeting()
    announced = b"\0" + (512 << 20).to_bytes(4, "big")
    pieces = [announced + bytes(16_000), *[bytes(16_384)] * 14]
    for stream_id in range(1, _STREAM_IDS_MAX, 2):
        yield request(stream_id, "POST", DEPLOY, GRPC, end=False) + b"".join(
            frame(Kind.DATA, 0, stream_id, piece) for piece in pieces
        )


def _heads_without_a_token() -> Iterator[bytes]:
    yield greeting()
    yield from _in_batches(lambda stream_id: request(stream_id, "POST", DEPLOY, GRPC))


ATTACKS: dict[str, Attack] = {
    "rapid_reset": Attack(send=_rapid_reset),
    "rapid_reset_plain": Attack(send=_rapid_reset_of_plain),
    "made_you_reset": Attack(send=_made_you_reset),
    "continuation": Attack(send=_continuation),
    "empty_continuation": Attack(send=_empty_continuation),
    "pings": Attack(send=_pings),
    "pings_unread": Attack(send=_pings, reads=False),
    "settings": Attack(send=_settings),
    "settings_unread": Attack(send=_settings, reads=False),
    "window_updates": Attack(send=_window_updates),
    "one_byte_data": Attack(send=_one_byte_data),
    "empty_data": Attack(send=_empty_data),
    "hpack_bomb": Attack(send=_hpack_bomb),
    "body_bombs": Attack(send=_body_bombs),
    "slow_read_http2": Attack(send=_unread_streams, reads=False),
    "slow_write_http2": Attack(send=_slow_bodies_of_streams, piece_interval_s=0.05),
    "slow_read_http1": Attack(send=_unread_answers, reads=False, connections=50),
    "slow_heads": Attack(send=_slow_heads, connections=200, piece_interval_s=0.005),
    "slow_bodies": Attack(send=_slow_bodies, connections=50, piece_interval_s=0.005),
    "long_heads": Attack(send=_long_heads),
    "one_byte_chunks": Attack(send=_one_byte_chunks),
    "chunk_extensions": Attack(send=_chunk_extensions),
    "pipeline": Attack(send=_pipeline),
    "pipeline_unread": Attack(send=_pipeline, reads=False),
    "idle_http1": Attack(send=_idle_of_http1, connections=1500, reopens=False),
    "idle_http2": Attack(send=_idle_of_http2, connections=3000, reopens=False),
    "idle_http2_again": Attack(send=_idle_of_http2, connections=3000),
    "silent": Attack(send=_silent, connections=1500, reopens=False),
    "open_and_close": Attack(send=_open_and_close),
    **{
        f"websocket_{name}": Attack(send=send, neighbour=web_sockets.NEIGHBOUR)
        for name, send in web_sockets.SENDERS.items()
    },
    **{f"json_{name}": Attack(send=send) for name, send in json_bodies.SENDERS.items()},
    "controller_bodies": Attack(send=_bodies_without_a_token, on_controller=True),
    "controller_crowd": Attack(send=_bodies_without_a_token, connections=50, on_controller=True),
    "controller_heads": Attack(send=_heads_without_a_token, on_controller=True),
    "controller_idle": Attack(
        send=_idle_of_http2, connections=1500, reopens=False, on_controller=True
    ),
}
