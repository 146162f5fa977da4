"""Calls from the page, to an ingress that says what the test wants."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager
from typing import Any

import pytest

from pyserve.admin.context import Door
from pyserve.admin.trying import DoorClosed, TooManyTries, Tries, Wanted, message_of, wanted_of
from pyserve.admin.trying.wanted import END, MESSAGE, Envelopes, envelope
from pyserve.errors import UsageError

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
_CONNECT = "application/connect+json"
_PATIENCE_S = 30.0


@asynccontextmanager
async def door(serve: Serve) -> AsyncIterator[Door]:
    """Have an ingress that reads a head and then does what the test wants."""
    ended: list[BaseException] = []

    async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await reader.readuntil(b"\r\n\r\n")
            await serve(reader, writer)
        except (OSError, EOFError):
            pass  # The page has gone.
        except BaseException as error:
            ended.append(error)
            raise
        finally:
            writer.close()

    server = await asyncio.start_server(greet, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        yield Door(f"127.0.0.1:{port}", speaks_tls=False)
    assert [] == ended


def stream(**more: Any) -> Wanted:
    given = {"kind": "rpc", "path": "/a.B/C", "messages": ["{}"], "is_stream": True, **more}
    return wanted_of(json.dumps(given).encode())


def head(content_type: str, *more: str) -> bytes:
    lines = ("HTTP/1.1 200 OK", f"content-type: {content_type}", *more, "", "")
    return "\r\n".join(lines).encode()


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


async def events(tries: Tries, at: Door, wanted: Wanted) -> list[tuple[str, dict[str, Any]]]:
    async with asyncio.timeout(_PATIENCE_S):
        return [each async for each in tries.call(at, wanted)]


async def test_messages_are_shown_as_they_come():
    goes_on = asyncio.Event()

    async def serve(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(head(_CONNECT, "transfer-encoding: chunked"))
        whole = envelope(MESSAGE, b'{"a":1}')
        writer.write(chunk(whole[:3]) + chunk(whole[3:]))
        await goes_on.wait()
        writer.write(chunk(envelope(END, b'{"error":{"code":"internal"}}')) + chunk(b""))

    async with (
        asyncio.timeout(_PATIENCE_S),
        door(serve) as at,
        aclosing(Tries().call(at, stream())) as call,
    ):
        assert ["begun", "head"] == [(await anext(call))[0] for _ in range(2)]
        assert ("message", {"text": '{"a":1}'}) == await anext(call)
        goes_on.set()
        assert ["status", "end"] == [(await anext(call))[0] for _ in range(2)]


async def test_messages_are_sent_while_answers_come():
    sent: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(head(_CONNECT, "transfer-encoding: chunked"))
        while size := int(await reader.readline(), 16):
            sent.append(await reader.readexactly(size))
            await reader.readline()
            writer.write(chunk(sent[-1]))
        writer.write(chunk(envelope(END, b"{}")) + chunk(b""))

    tries = Tries()
    async with door(serve) as at, asyncio.timeout(_PATIENCE_S):
        async with aclosing(tries.call(at, stream(messages=[], has_more=True))) as call:
            call_id = (await anext(call))[1]["call"]
            assert "head" == (await anext(call))[0]
            for number in range(3):
                message = message_of(json.dumps({"message": f"{number}"}).encode())
                await tries.send(call_id, message)
                assert ("message", {"text": f"{number}"}) == await anext(call)
            await tries.send(call_id, b"")
            assert ["status", "end"] == [(await anext(call))[0] for _ in range(2)]
        with pytest.raises(UsageError, match="may have ended"):
            await tries.send(call_id, message)
    assert [envelope(MESSAGE, b"%d" % number) for number in range(3)] == sent


async def test_closing_the_call_closes_its_connection():
    gone = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(head(_CONNECT, "transfer-encoding: chunked"))
        try:
            while await reader.read(100):
                pass
        finally:
            gone.set()

    async with door(serve) as at, asyncio.timeout(_PATIENCE_S):
        async with aclosing(Tries().call(at, stream())) as call:
            assert ["begun", "head"] == [(await anext(call))[0] for _ in range(2)]
        await gone.wait()


async def test_a_body_that_is_no_text_comes_as_base64():
    async def serve(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(head("image/png", "content-length: 3") + b"\xff\x00a")

    async with door(serve) as at:
        found = dict(await events(Tries(), at, stream()))
    assert b"\xff\x00a" == base64.b64decode(found["piece"]["base64"])


async def test_characters_are_whole_where_chunks_are_not():
    async def serve(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(head("text/plain", "transfer-encoding: chunked"))
        for byte in "ö!".encode():
            writer.write(chunk(bytes([byte])))
            await writer.drain()
        writer.write(chunk(b""))

    async with door(serve) as at:
        found = await events(Tries(), at, stream())
    assert "ö!" == "".join(data["text"] for name, data in found if name == "piece")


async def test_a_long_answer_is_cut_and_its_call_ended():
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(head("text/plain", f"content-length: {1 << 30}"))
        while True:
            writer.write(b"x" * 65536)
            await writer.drain()

    async with door(serve) as at:
        found = await events(Tries(), at, stream())
    assert ("end", True) == (found[-1][0], found[-1][1]["is_cut"])
    assert 1 << 20 == sum(len(data["text"]) for name, data in found if name == "piece")


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"no http\r\n\r\n",
        head("text/plain", "content-length: 9") + b"abc",
        head(_CONNECT, "transfer-encoding: chunked") + b"5\r\nab",
    ],
)
async def test_an_answer_that_breaks_off_says_so(answer: bytes):
    async def serve(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(answer)

    async with door(serve) as at:
        found = await events(Tries(), at, stream())
    assert "broken" == found[-1][0]
    assert "broke off" in found[-1][1]["reason"]


async def test_few_calls_are_under_way_at_once():
    async def serve(reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
        await reader.read()

    tries = Tries()
    async with door(serve) as at, asyncio.timeout(_PATIENCE_S):
        calls = [tries.call(at, stream()) for _ in range(5)]
        for each in calls[:4]:
            await anext(each)
        with pytest.raises(TooManyTries, match="4 calls"):
            await anext(calls[4])
        for each in calls:
            await each.aclose()
        assert "begun" == (await anext(tries.call(at, stream())))[0]


async def test_a_door_that_is_closed_is_said_at_once(unused_tcp_port: int):
    with pytest.raises(DoorClosed, match="gave no answer"):
        await anext(Tries().call(Door(f"127.0.0.1:{unused_tcp_port}", speaks_tls=False), stream()))


def test_envelopes_are_whole_however_they_come():
    data = envelope(MESSAGE, b"") + envelope(MESSAGE, b"abc") + envelope(END, b"{}")
    expected = [(MESSAGE, b""), (MESSAGE, b"abc"), (END, b"{}")]
    for size in range(1, len(data) + 1):
        envelopes = Envelopes()
        pieces = [data[at : at + size] for at in range(0, len(data), size)]
        assert expected == [each for piece in pieces for each in envelopes.feed(piece)]


@pytest.mark.parametrize("read", [wanted_of, message_of])
def test_brackets_in_brackets_are_refused(read: Callable[[bytes], object]) -> None:
    with pytest.raises(UsageError, match="as JSON"):
        read(b"[" * 100_000)
