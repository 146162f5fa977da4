"""Compression of WebSockets: what is agreed on, and that another implementation reads the same."""

from __future__ import annotations

import asyncio
import itertools
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from websockets.extensions.permessage_deflate import PerMessageDeflate
from websockets.frames import Close, Frame, Opcode
from websockets.protocol import Protocol, Side

from pyserve.replica.asgi.deflate import agree
from tests.unit.replica.asgi.serving import serving

_TAIL = b"\x00\x00\xff\xff"
_CONTROL = st.tuples(st.sampled_from([Opcode.PING, Opcode.PONG]), st.binary(max_size=125))
# What zlib makes short, what it cannot, and what has characters of several bytes.
_TEXTS = st.one_of(st.text(max_size=40), st.sampled_from(["a" * 9000, "ö€😀" * 300, ""]))
_PAYLOADS = st.one_of(_TEXTS, st.binary(max_size=300), st.just(bytes(range(256)) * 40))


@dataclass(frozen=True)
class Sent:
    """One message and how it comes: at each cut, in permille, stand control frames."""

    payload: str | bytes
    is_compressed: bool = True
    cuts: Sequence[tuple[int, Sequence[tuple[Opcode, bytes]]]] = ()


@dataclass
class Seen:
    """The messages and pings that a server has read."""

    messages: list[str | bytes] = field(default_factory=list)
    pongs: list[bytes] = field(default_factory=list)
    close: int | None = None


def frame(opcode: Opcode, data: bytes = b"", *, fin: bool = True, rsv1: bool = False) -> bytes:
    """Write a frame of a client; its mask is of zeros."""
    head = bytes([fin << 7 | rsv1 << 6 | opcode])
    if len(data) < 126:
        return head + bytes([0x80 | len(data)]) + bytes(4) + data
    return head + b"\xfe" + len(data).to_bytes(2, "big") + bytes(4) + data


def frames_of(sent: Sequence[Sent], *, forgets: bool, bits: int) -> Iterator[bytes]:
    """Write messages as a client does that compresses each as a whole, and cuts it then."""
    compressor = zlib.compressobj(wbits=-bits)
    for each in sent:
        data = each.payload.encode() if isinstance(each.payload, str) else each.payload
        if each.is_compressed:
            if forgets:
                compressor = zlib.compressobj(wbits=-bits)
            data = compressor.compress(data) + compressor.flush(zlib.Z_SYNC_FLUSH)
            data = data.removesuffix(_TAIL)
        cuts = sorted((permille * len(data) // 1000, controls) for permille, controls in each.cuts)
        opcode = Opcode.TEXT if isinstance(each.payload, str) else Opcode.BINARY
        start, rsv1 = 0, each.is_compressed
        for end, controls in cuts:
            yield frame(opcode, data[start:end], fin=False, rsv1=rsv1)
            yield from (frame(*control) for control in controls)
            opcode, start, rsv1 = Opcode.CONT, end, False
        yield frame(opcode, data[start:], rsv1=rsv1)


_CLOSE = frame(Opcode.CLOSE, Close(1000, "").serialize())
_CUTS = st.lists(st.tuples(st.integers(0, 1000), st.lists(_CONTROL, max_size=2)), max_size=4)
_SENT = st.lists(st.builds(Sent, _PAYLOADS, st.booleans(), _CUTS), min_size=1, max_size=5)
_PING_BETWEEN = [(500, [(Opcode.PING, b"p"), (Opcode.PONG, b"")])]


@given(_SENT, st.booleans(), st.integers(9, 15), st.lists(st.integers(1, 700), max_size=8))
@example([Sent("a text", cuts=_PING_BETWEEN)], False, 15, [])
@example([Sent(b"bytes" * 9, cuts=_PING_BETWEEN)], False, 15, [1])
@example([Sent("plain", False, _PING_BETWEEN), Sent("x" * 99, cuts=_PING_BETWEEN)], True, 9, [3])
@example([Sent("", cuts=[(0, []), (1000, [(Opcode.PONG, b"")])]), Sent(b"")], False, 15, [])
def test_another_implementation_reads_the_same(
    sent: list[Sent], forgets: bool, bits: int, sizes: list[int]
) -> None:
    """Control frames stand between the fragments of messages that are compressed, or not."""
    data = b"".join(frames_of(sent, forgets=forgets, bits=bits))
    data += _CLOSE
    reference = Protocol(Side.SERVER, max_size=None)
    reference.extensions = [PerMessageDeflate(forgets, False, bits, 15)]
    expected = read_by(reference, [data])
    assert [each.payload for each in sent] == expected.messages

    offer = f"permessage-deflate; client_max_window_bits={bits}".encode()
    offer += b"; client_no_context_takeover" * forgets
    assert expected == asyncio.run(read_by_ours(offer, list(pieces(data, sizes))))


@given(st.lists(_PAYLOADS, min_size=1, max_size=5), st.booleans(), st.integers(9, 15))
@example(["x", "", "", "x"], False, 15)
def test_another_implementation_reads_what_is_sent(
    payloads: list[str | bytes], forgets: bool, bits: int
) -> None:
    offer = f"permessage-deflate; server_max_window_bits={bits}".encode()
    offer += b"; server_no_context_takeover" * forgets
    frames = asyncio.run(sent_by_ours(offer, payloads))
    client = Protocol(Side.CLIENT, max_size=None)
    client.extensions = [PerMessageDeflate(forgets, False, bits, 15)]
    assert payloads == read_by(client, frames).messages


async def test_a_block_that_calls_itself_the_last_one_is_read() -> None:
    """The example of RFC 7692, 7.2.3.4; a sender may do that with every message."""
    hello = bytes.fromhex("f348cdc9c9070000")
    data = frame(Opcode.TEXT, hello, rsv1=True) * 2
    data += frame(Opcode.TEXT, hello[:3], fin=False, rsv1=True) + frame(Opcode.PING, b"p")
    data += frame(Opcode.CONT, hello[3:]) + frame(Opcode.CLOSE, b"")
    assert ["Hello"] * 3 == (await read_by_ours(b"permessage-deflate", [data])).messages


@pytest.mark.parametrize(
    ("data", "code"),
    [
        pytest.param(frame(Opcode.PING, rsv1=True), 1002, id="a compressed ping"),
        pytest.param(
            frame(Opcode.BINARY, fin=False, rsv1=True) + frame(Opcode.CONT, rsv1=True),
            1002,
            id="a fragment that says it too",
        ),
        pytest.param(frame(Opcode.BINARY, b"\xff" * 9, rsv1=True), 1007, id="no deflate"),
        # The second message refers to the first, which "client_no_context_takeover" forbids.
        pytest.param(
            b"".join(frames_of([Sent(b"a" * 99)] * 2, forgets=False, bits=15)),
            1007,
            id="a reference to what is forgotten",
        ),
    ],
)
async def test_what_cannot_be_read_closes_and_reaches_no_application(
    data: bytes, code: int
) -> None:
    seen = await read_by_ours(b"permessage-deflate; client_no_context_takeover", [data])
    assert code == seen.close
    assert seen.messages in ([], [b"a" * 99])


@pytest.mark.parametrize(
    ("offers", "answer"),
    [
        ((b"permessage-deflate",), b"permessage-deflate"),
        (
            (b"permessage-deflate; client_max_window_bits",),
            b"permessage-deflate; client_max_window_bits=15",
        ),
        (
            (b'permessage-deflate;client_max_window_bits="10" ; server_max_window_bits = "1\\2"',),
            b"permessage-deflate; client_max_window_bits=10; server_max_window_bits=12",
        ),
        (
            (b"permessage-deflate; server_no_context_takeover; client_no_context_takeover",),
            b"permessage-deflate; client_no_context_takeover; server_no_context_takeover",
        ),
        (
            (b"permessage-deflate; client_max_window_bits=8",),
            b"permessage-deflate; client_max_window_bits=8",
        ),
        ((b"x-other; a=b, permessage-deflate",), b"permessage-deflate"),
        ((b"", b" , permessage-deflate"), b"permessage-deflate"),
        (
            (b"permessage-deflate; server_max_window_bits=x; client_no_context_takeover",
             b"permessage-deflate; server_max_window_bits=9"),
            b"permessage-deflate; server_max_window_bits=9",
        ),
    ],
)  # fmt: skip
def test_the_first_offer_that_can_be_had_is_taken(offers: tuple[bytes, ...], answer: bytes) -> None:
    deflate = agree(offers)
    assert deflate is not None
    assert answer == deflate.answer


@pytest.mark.parametrize(
    "parameters",
    [
        b"server_max_window_bits=8",  # zlib cannot.
        b"server_max_window_bits",
        b"server_max_window_bits=16",
        b"server_max_window_bits=010",
        b"server_max_window_bits=abc",
        b"client_max_window_bits=",
        b'client_max_window_bits=""',
        b'client_max_window_bits="10',
        b"client_max_window_bits=-1",
        b"client_max_window_bits=9; client_max_window_bits=9",
        b"client_max_window_bits=\xb2",
        b"client_max_window_bits=" + b"9" * 5000,
        b"client_no_context_takeover=1",
        b"client_no_context_takeovers",
        b"server_no_context_takeover=",
        b"client_",
        b"unknown",
        b"un known=1",
        b"",
    ],
)
def test_an_offer_that_cannot_be_had_is_declined(parameters: bytes) -> None:
    assert agree([b"permessage-deflate; " + parameters]) is None


@given(st.lists(st.binary(max_size=60)), st.binary(max_size=60))
def test_no_offer_raises(values: list[bytes], parameters: bytes) -> None:
    agree([*values, b"permessage-deflate;" + parameters])


# --- both implementations -------------------------------------------------------------------


def pieces(data: bytes, sizes: Sequence[int]) -> Iterator[bytes]:
    """Cut ``data`` into pieces of these sizes, again and again."""
    start = 0
    for size in itertools.cycle(sizes or [len(data)]):
        if start >= len(data):
            return
        yield data[start : start + size]
        start += size


def read_by(protocol: Protocol, received: Sequence[bytes]) -> Seen:
    """Return what websockets makes of frames."""
    for piece in received:
        protocol.receive_data(piece)
    seen, is_text = Seen(), False
    parts: list[bytes] = []
    for event in protocol.events_received():
        assert isinstance(event, Frame)
        if event.opcode is Opcode.PING:
            seen.pongs.append(bytes(event.data))
        elif event.opcode is Opcode.CLOSE:
            seen.close = Close.parse(event.data).code
        elif event.opcode is not Opcode.PONG:
            is_text = event.opcode is Opcode.TEXT if not parts else is_text
            parts.append(bytes(event.data))
            if event.fin:
                whole, parts = b"".join(parts), []
                seen.messages.append(whole.decode() if is_text else whole)
    assert protocol.parser_exc is None or isinstance(protocol.parser_exc, EOFError)
    return seen


async def read_by_ours(offer: bytes, received: Sequence[bytes]) -> Seen:
    """Return what an application is told, and the pongs that the client gets."""
    seen = Seen()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        await send({"type": "websocket.accept"})
        while (message := await receive())["type"] == "websocket.receive":
            seen.messages.append(message["text"] if "text" in message else message["bytes"])
        seen.close = message["code"]

    commands = await serve(app, offer, received)
    client = Protocol(Side.CLIENT, max_size=None)
    for piece in written(commands):
        client.receive_data(piece)
    frames = [event for event in client.events_received() if isinstance(event, Frame)]
    seen.pongs = [bytes(frame.data) for frame in frames if frame.opcode is Opcode.PONG]
    return seen


async def sent_by_ours(offer: bytes, payloads: Sequence[str | bytes]) -> list[bytes]:
    """Return the frames of an application that sends these messages."""
    has_sent = asyncio.Event()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        await send({"type": "websocket.accept"})
        for payload in payloads:
            kind = "text" if isinstance(payload, str) else "bytes"
            await send({"type": "websocket.send", kind: payload})
        has_sent.set()
        await receive()

    return written(await serve(app, offer, [_CLOSE], has_sent))


async def serve(
    app: Any, offer: bytes, received: Sequence[bytes], begin: asyncio.Event | None = None
) -> list[tuple[Any, ...]]:
    """Run one WebSocket to its end; return what was queued for its client."""
    headers = [(b"host", b"h"), (b"sec-websocket-extensions", offer)]
    async with serving(app) as served:
        call = served.request(None, method="GET", is_websocket=True, headers=headers)
        if begin is not None:
            await asyncio.wait_for(begin.wait(), 30)
        for piece in received:
            served.push(call, piece)
        return await served.released(call)


def written(commands: Sequence[tuple[Any, ...]]) -> list[bytes]:
    """Return the frames among what was queued."""
    return [bytes(command[1]) for command in commands if command[0] == "write"]
