"""Messages of several parts through the native endpoint, and what their buffers go through."""

from __future__ import annotations

import asyncio
import mmap
import pickle
import re
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
from typing_extensions import Buffer

from pyserve import _router
from pyserve.bridge import LoopEndpoint, running_endpoint
from tests.support.waiting import eventually

_UNARY, _STREAM, _PICKY = "/test.T/Unary", "/test.T/Stream", "/test.T/Picky"
_LARGE_BYTES = 200_000
_TIMEOUT_S = 30.0

Answer = Callable[[_router.ServerCall, bytes | None], bool]


class Receiver:
    """Collects the messages of one call until its end, and returns the credit for streamed ones."""

    def __init__(self, call: _router.ServerCall | _router.ClientCall) -> None:
        self.call = call
        self.messages: list[bytes] = []
        self.done = asyncio.Event()

    def on_event(self, kind: int, subject: object, payload: object) -> None:
        if isinstance(payload, bytes):
            self.messages.append(payload)
        if kind == _router.MESSAGE and isinstance(payload, bytes) and self.call.taken(len(payload)):
            running_endpoint().schedule_flush()
        if kind in (_router.DONE, _router.HALF_CLOSE):
            self.done.set()

    def abandon(self) -> None:
        self.done.set()


@dataclass
class Ends:
    """A channel to a server on the same loop; the test says what the server answers."""

    endpoint: LoopEndpoint
    channel: _router.Channel
    port: int
    answer: Answer = field(default=lambda call, message: call.reply(message or b""))

    def on_call(self, token: int, call: _router.ServerCall, message: bytes | None) -> None:
        if self.answer(call, message):
            self.endpoint.schedule_flush()

    def hold_calls(self) -> list[_router.ServerCall]:
        """Answer nothing from now on; the list gets the calls."""
        calls: list[_router.ServerCall] = []

        def hold(call: _router.ServerCall, message: bytes | None) -> bool:
            calls.append(call)
            return False

        self.answer = hold
        return calls

    def start(
        self, message: _router.Payload | None, path: str = _UNARY, **options: str
    ) -> tuple[_router.ClientCall, Receiver]:
        call = self.channel.start_call(
            self.endpoint.raw,
            path,
            (),
            _TIMEOUT_S,
            message,
            -1,
            False,
            path == _STREAM,
            subtype=options.get("subtype", ""),
            model_id=options.get("model_id", ""),
        )
        receiver = self.endpoint.receivers[call.token] = Receiver(call)
        if call.started:
            self.endpoint.schedule_flush()
        return call, receiver

    async def call(self, message: _router.Payload) -> bytes:
        call, receiver = self.start(message)
        await asyncio.wait_for(receiver.done.wait(), _TIMEOUT_S)
        assert call.code() == 0, call.details()
        return receiver.messages[0]


@asynccontextmanager
async def _ends() -> AsyncIterator[Ends]:
    endpoint = running_endpoint()
    server = _router.Server(endpoint.raw)
    server.register(_UNARY, False, False, 1)
    server.register(_STREAM, True, True, 1)
    server.register(_PICKY, False, False, 1, subtypes=["json", "raw"], max_message_bytes=100)
    port = server.listen_tcp("127.0.0.1:0", None, False)
    server.start()
    ends = Ends(endpoint, _router.Channel(f"127.0.0.1:{port}"), port)
    endpoint.on_call = ends.on_call
    try:
        yield ends
    finally:
        ends.channel.close()
        server.stop()


def _parts() -> list[Buffer]:
    """Small and large parts of every kind, empty ones and numbers among them."""
    table: Any = np.arange(_LARGE_BYTES // 8, dtype="f8").reshape(10, -1)
    nothing: Any = np.zeros((0, 3))
    number: Any = np.array(2.5)
    mapped = mmap.mmap(-1, _LARGE_BYTES)
    mapped[:3] = b"map"
    lasting: Any = np.frombuffer(bytes(range(256)) * 800, dtype="f4").reshape(2, -1)
    return [
        b"head",
        bytearray(b"b" * _LARGE_BYTES),
        table,
        b"",
        memoryview(mapped)[100:],
        lasting,
        b"x" * _LARGE_BYTES,
        memoryview(b"small"),
        nothing,
        number,
        bytearray(b"tail"),
    ]


def _joined(parts: list[Buffer]) -> bytes:
    return b"".join(bytes(memoryview(part)) for part in parts)


async def test_parts_arrive_as_one_message_both_ways() -> None:
    """A list of buffers is sent as their bytes in order, whatever kinds they are of."""
    parts = _parts()
    async with _ends() as ends:
        assert _joined(parts) == await ends.call(parts)
        ends.answer = lambda call, message: call.reply(parts)
        assert _joined(parts) == await ends.call([])
        ends.answer = lambda call, message: call.finish(0, "", (), parts)
        assert _joined(parts) == await ends.call(b"")


async def test_streams_carry_messages_of_parts() -> None:
    """Every message of a stream may have parts, and they never run into each other."""
    parts = _parts()
    async with _ends() as ends:
        arrived: list[Receiver] = []

        def answer(call: _router.ServerCall, message: bytes | None) -> bool:
            arrived.append(Receiver(call))
            ends.endpoint.receivers[call.token] = arrived[0]
            is_first = call.write(parts, 0)
            call.write([b"a", b"b"], 0)
            return is_first

        ends.answer = answer
        call, receiver = ends.start(None, _STREAM)
        call.write(parts, 0)
        call.write([], 0)
        call.half_close()
        ends.endpoint.schedule_flush()
        await eventually(lambda: len(receiver.messages) == 2)
        await asyncio.wait_for(arrived[0].done.wait(), _TIMEOUT_S)
        assert [_joined(parts), b""] == arrived[0].messages
        assert [_joined(parts), b"ab"] == receiver.messages


async def test_buffers_of_a_request_are_taken_until_it_was_answered(tmp_path: Path) -> None:
    """What nobody can write is borrowed while it may be sent again, and free afterwards."""
    array: Any = np.frombuffer(bytes(_LARGE_BYTES), dtype="u1")
    before = sys.getrefcount(array)
    async with _ends() as ends:
        calls = ends.hold_calls()
        mapped = _read_only_map(tmp_path, _LARGE_BYTES)
        view = memoryview(mapped)
        _, receiver = ends.start([array, view])
        await eventually(lambda: calls)
        assert before < sys.getrefcount(array)
        view.release()
        assert not _closes(mapped)
        calls[0].reply(b"")
        ends.endpoint.schedule_flush()
        await asyncio.wait_for(receiver.done.wait(), _TIMEOUT_S)
        assert before == sys.getrefcount(array)
        mapped.close()


def _read_only_map(folder: Path, size_bytes: int) -> mmap.mmap:
    path = folder / "mapped"
    path.write_bytes(b"m" * size_bytes)
    with path.open("rb") as file:
        return mmap.mmap(file.fileno(), size_bytes, access=mmap.ACCESS_READ)


def _hidden_array(owner: Any) -> Any:
    """A read-only array over a read-only array of what can be written."""
    view = np.frombuffer(memoryview(owner).toreadonly(), dtype="u1")
    return view.reshape(10, -1)[1:]


def _read_only_view(owner: Any) -> Any:
    view = np.asarray(owner).view()
    view.flags.writeable = False
    return view


@pytest.mark.parametrize(
    ("owner", "shown"),
    [
        pytest.param(lambda: bytearray(_LARGE_BYTES), lambda owner: owner, id="bytearray"),
        pytest.param(
            lambda: bytearray(_LARGE_BYTES),
            lambda owner: memoryview(memoryview(owner)[1:].toreadonly()),
            id="read-only view",
        ),
        pytest.param(lambda: bytearray(_LARGE_BYTES), _hidden_array, id="arrays of a view"),
        pytest.param(lambda: np.zeros(_LARGE_BYTES, "u1"), lambda owner: owner, id="array"),
        pytest.param(lambda: np.zeros(_LARGE_BYTES, "u1"), _read_only_view, id="read-only array"),
        pytest.param(
            lambda: np.zeros(_LARGE_BYTES, "u1"),
            lambda owner: pickle.PickleBuffer(_read_only_view(owner)).raw(),
            id="what is pickled beside",
        ),
        pytest.param(lambda: mmap.mmap(-1, _LARGE_BYTES), lambda owner: owner, id="map"),
    ],
)
async def test_what_can_be_written_is_copied(
    owner: Callable[[], Any], shown: Callable[[Any], Any]
) -> None:
    """Writing into a buffer once the call is queued changes nothing that is sent."""
    owned = owner()
    async with _ends() as ends:
        part = shown(owned)
        size_bytes = memoryview(part).nbytes
        _, receiver = ends.start([part, b"tail"])
        owned[:] = bytes([7]) * len(owned) if not isinstance(owned, np.ndarray) else 7
        await asyncio.wait_for(receiver.done.wait(), _TIMEOUT_S)
    assert [bytes(size_bytes) + b"tail"] == receiver.messages


async def test_buffers_of_an_answer_are_free_while_the_loop_sleeps(tmp_path: Path) -> None:
    """The I/O thread that has sent a buffer wakes the loop that lent it, and waits for nobody.

    The client is another library: a call of ours would enter the module, and free the buffer.
    """
    async with _ends() as ends:
        # More than the client's window: when the last of it goes, the loop sleeps.
        mapped = _read_only_map(tmp_path, 3_000_000)
        ends.answer = lambda call, message: call.reply([mapped])
        assert bytes(mapped) == await asyncio.to_thread(_ask_with_grpcio, ends.port)
        await eventually(lambda: _closes(mapped), what="the map can be closed")


def _ask_with_grpcio(port: int) -> bytes:
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        ask: Any = channel.unary_unary(_UNARY)
        answer: bytes = ask(b"", timeout=_TIMEOUT_S)
        return answer


def _closes(mapped: mmap.mmap) -> bool:
    try:
        mapped.close()
    except BufferError:
        return False
    return True


async def test_buffers_of_a_cancelled_call_are_free(tmp_path: Path) -> None:
    """A call that ends before it was answered gives back what it borrowed."""
    async with _ends() as ends:
        calls = ends.hold_calls()
        mapped = _read_only_map(tmp_path, _LARGE_BYTES)
        call, _ = ends.start([mapped])
        await eventually(lambda: calls)
        call.cancel(1, "no longer wanted")
        ends.endpoint.schedule_flush()
        await eventually(lambda: _closes(mapped), what="the map can be closed")


async def test_small_buffers_are_copied() -> None:
    """Below 64 KiB nothing is borrowed: the buffer may change as soon as the call is queued."""
    async with _ends() as ends:
        small = bytearray(b"small")
        _, receiver = ends.start([small])
        small[:] = b"other things"
        await asyncio.wait_for(receiver.done.wait(), _TIMEOUT_S)
        assert [b"small"] == receiver.messages


@pytest.mark.parametrize(
    ("message", "error", "says"),
    [
        pytest.param([b"", np.arange(9)[::2]], ValueError, r"part 1 .*C-contiguous", id="strided"),
        pytest.param([np.zeros((300, 300)).T], ValueError, r"part 0 .*C-contiguous", id="fortran"),
        pytest.param([memoryview(b"abcd")[::-1]], ValueError, "C-contiguous", id="reversed"),
        pytest.param([np.array([object()])], ValueError, "references", id="objects"),
        pytest.param([b"", "text"], TypeError, r"part 1 of the message \(str\)", id="text part"),
        pytest.param("text", TypeError, "bytes or a list", id="text"),
        pytest.param(np.zeros(3), TypeError, "bytes or a list", id="bare array"),
    ],
)
async def test_what_cannot_be_sent_is_named(message: object, error: type, says: str) -> None:
    """A part without a contiguous buffer is refused at once, with its place and its type."""
    async with _ends() as ends:
        with pytest.raises(error, match=says):
            ends.start(message)  # type: ignore[arg-type]


async def test_the_call_tells_codec_model_and_trust() -> None:
    """A server learns codec and model of a call, and may answer with another codec."""
    async with _ends() as ends:
        seen: list[tuple[str, str, bool, bool]] = []

        def answer(call: _router.ServerCall, message: bytes | None) -> bool:
            seen.append((call.subtype, call.model_id, call.trusted, call.framed))
            call.set_response_subtype("raw")
            return call.reply(b"")

        ends.answer = answer
        call, receiver = ends.start(b"", subtype="json", model_id="m1")
        assert call.subtype() is None
        await asyncio.wait_for(receiver.done.wait(), _TIMEOUT_S)
        assert [("json", "m1", False, False)] == seen
        assert call.subtype() == "raw"


@pytest.mark.parametrize(
    ("subtype", "size_bytes", "code", "says"),
    [
        ("json", 100, 0, ""),
        # The method's own limit is for handles: a stranger has that of the server.
        ("json", 101, 0, ""),
        ("json", 4 * 1024 * 1024 + 1, 8, "limit of 4194304 bytes"),
        (
            "foo",
            1,
            12,
            r"takes application/grpc\+{json,raw}, the client sent application/grpc\+foo",
        ),
        ("", 1, 12, r"application/grpc\+proto"),
    ],
)
async def test_a_method_has_its_own_codecs_and_limit(
    subtype: str, size_bytes: int, code: int, says: str
) -> None:
    """A method registered with codecs and a limit refuses what does not fit, by name."""
    async with _ends() as ends:
        call, receiver = ends.start(bytes(size_bytes), _PICKY, subtype=subtype)
        await asyncio.wait_for(receiver.done.wait(), _TIMEOUT_S)
        assert code == call.code()
        assert re.search(says, call.details() or "")


async def test_pickles_of_strangers_are_unimplemented() -> None:
    """Whatever a method takes, pickles come over proven connections only."""
    async with _ends() as ends:
        call, receiver = ends.start(b"", subtype="cloudpickle")
        await asyncio.wait_for(receiver.done.wait(), _TIMEOUT_S)
        assert call.code() == 12
        assert "only inside the mesh" in (call.details() or "")
        with pytest.raises(ValueError, match="no codec's name"):
            ends.start(b"", subtype="not a name")
