"""Events that the server queues for each way a handler may end, seen through the fake ring."""

import asyncio
import contextlib
import gc
import threading
import weakref
from collections.abc import AsyncIterator, Iterator
from typing import Any

import grpc
import pytest
from google.protobuf import wrappers_pb2

from pyserve import _router
from pyserve.aio import ServerSettings, Status
from pyserve.aio._server import Server
from tests.support.waiting import eventually
from tests.unit.aio.fake_ring import FakeServer, FakeServerCall

pytestmark = pytest.mark.usefixtures("fake_ring")

INTERNAL = grpc.StatusCode.INTERNAL.value[0]
UNKNOWN = grpc.StatusCode.UNKNOWN.value[0]
CANCELLED = grpc.StatusCode.CANCELLED.value[0]
DEADLINE_EXCEEDED = grpc.StatusCode.DEADLINE_EXCEEDED.value[0]


async def _serve(handler: Any, **settings: Any) -> tuple[Server, FakeServer]:
    server = Server(settings=ServerSettings(**settings))
    server.add_registered_method_handlers("p.S", {"Call": handler})
    await server.start()
    native: Any = server.native
    return server, native


async def _ended(call: FakeServerCall) -> tuple[Any, ...]:
    await eventually(lambda: not call.is_active())
    return call.commands[-1]


async def test_plain_unary_answer_is_one_command() -> None:
    async def echo(request: bytes, _context: Any) -> bytes:
        return request

    server, native = await _serve(grpc.unary_unary_rpc_method_handler(echo))
    call = native.call("/p.S/Call", b"x")
    assert ("reply", b"x") == await _ended(call)
    assert [("reply", b"x")] == call.commands
    assert {} == server._endpoint.receivers
    await server.stop(None)


async def test_an_ended_call_is_freed_without_the_collector() -> None:
    contexts: list[weakref.ref[Any]] = []

    async def unary(_request: bytes, context: Any) -> bytes:
        contexts.append(weakref.ref(context))
        return b""

    async def stream(_request: bytes, context: Any) -> AsyncIterator[bytes]:
        contexts.append(weakref.ref(context))
        yield b""

    handlers: list[Any] = [
        grpc.unary_unary_rpc_method_handler(unary),
        grpc.unary_stream_rpc_method_handler(stream),
    ]
    for handler in handlers:
        server, native = await _serve(handler)
        gc.disable()
        try:
            await _ended(native.call("/p.S/Call", b""))
            await eventually(lambda: contexts[-1]() is None)
        finally:
            gc.enable()
        await server.stop(None)


async def test_exception_text_stays_out_of_the_answer(caplog: pytest.LogCaptureFixture) -> None:
    async def fail(_request: bytes, _context: Any) -> bytes:
        raise ValueError("a secret")

    server, native = await _serve(grpc.unary_unary_rpc_method_handler(fail))
    command = await _ended(native.call("/p.S/Call", b""))
    assert ("finish", UNKNOWN) == command[:2]
    assert "secret" not in command[2]
    assert "a secret" in caplog.text
    await server.stop(None)


async def test_development_mode_tells_type_and_text(caplog: pytest.LogCaptureFixture) -> None:
    async def fail(_request: bytes, _context: Any) -> bytes:
        raise ValueError("a secret")

    server, native = await _serve(grpc.unary_unary_rpc_method_handler(fail), development=True)
    command = await _ended(native.call("/p.S/Call", b""))
    assert "Unexpected <class 'ValueError'>: a secret" == command[2]
    assert "a secret" in caplog.text
    await server.stop(None)


_LATE = grpc.aio.AioRpcError(
    grpc.StatusCode.DEADLINE_EXCEEDED, grpc.aio.Metadata(), grpc.aio.Metadata(), "late"
)


@pytest.mark.parametrize("error", [TimeoutError("nested"), _LATE])
@pytest.mark.parametrize("remaining_s", [0.0, 3.0, None])
async def test_a_timeout_is_the_callers_where_its_deadline_has_passed(
    error: Exception, remaining_s: float | None, caplog: pytest.LogCaptureFixture
) -> None:
    async def give_up(_request: bytes, _context: Any) -> bytes:
        raise error

    server, native = await _serve(grpc.unary_unary_rpc_method_handler(give_up))
    call = native.call("/p.S/Call", b"")
    call.remaining_s = remaining_s
    command = await _ended(call)
    is_late = remaining_s == 0.0
    assert ("finish", DEADLINE_EXCEEDED if is_late else UNKNOWN) == command[:2]
    assert is_late == ("unexpected" not in caplog.text)
    await server.stop(None)


async def test_a_code_that_was_set_wins_over_lateness(caplog: pytest.LogCaptureFixture) -> None:
    async def give_up(_request: bytes, context: Any) -> bytes:
        context.set_code(grpc.StatusCode.INTERNAL)
        raise TimeoutError

    server, native = await _serve(grpc.unary_unary_rpc_method_handler(give_up))
    call = native.call("/p.S/Call", b"")
    call.remaining_s = 0.0
    assert ("finish", INTERNAL) == (await _ended(call))[:2]
    assert "unexpected" in caplog.text
    await server.stop(None)


async def test_exceptions_with_a_status_give_it() -> None:
    class Refusal(Exception):
        pass

    async def fail(_request: bytes, _context: Any) -> bytes:
        raise Refusal

    def status_of(error: BaseException, _context: Any) -> Status | None:
        if isinstance(error, Refusal):
            return Status(grpc.StatusCode.NOT_FOUND, "no such thing", (("k", "v"),))
        return None

    server, native = await _serve(grpc.unary_unary_rpc_method_handler(fail), status_of=status_of)
    command = await _ended(native.call("/p.S/Call", b""))
    assert ("finish", 5, "no such thing", (("k", "v"),), None) == command
    await server.stop(None)


@pytest.mark.parametrize("framed", [True, False])
async def test_handles_get_more_metadata_than_clients_of_grpc(framed: bool) -> None:
    metadata = (("report", "m" * 20_000),)

    async def fail(_request: bytes, context: Any) -> None:
        await context.abort(grpc.StatusCode.NOT_FOUND, "t" * 3000, metadata)

    server, native = await _serve(grpc.unary_unary_rpc_method_handler(fail))
    call = native.call("/p.S/Call", b"")
    # Before its first step, in which it fails.
    call.framed = framed
    kept = metadata if framed else ()
    assert ("finish", 5, "t" * 3000, kept, None) == await _ended(call)
    await server.stop(None)


STRING = wrappers_pb2.StringValue


@pytest.mark.parametrize("wrong", [None, "text", wrappers_pb2.Int32Value(value=3)])
async def test_wrong_response_is_internal_and_logged(
    wrong: Any, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pyserve.aio._handlers._response_type", lambda _path, _serializer: STRING)

    async def answer(_request: Any, _context: Any) -> Any:
        return wrong

    handler = grpc.unary_unary_rpc_method_handler(
        answer, STRING.FromString, STRING.SerializeToString
    )
    server, native = await _serve(handler)
    command = await _ended(native.call("/p.S/Call", b""))
    assert ("finish", INTERNAL) == command[:2]
    assert "StringValue" not in command[2]
    assert type(wrong).__name__ in caplog.text
    assert "expected google.protobuf.wrappers_pb2.StringValue" in caplog.text
    await server.stop(None)


async def test_wrong_response_of_a_stream_is_internal(caplog: pytest.LogCaptureFixture) -> None:
    async def answer(_request: bytes, _context: Any) -> AsyncIterator[Any]:
        yield b"fine"
        yield 17

    server, native = await _serve(grpc.unary_stream_rpc_method_handler(answer))
    call = native.call("/p.S/Call", b"")
    assert ("finish", INTERNAL) == (await _ended(call))[:2]
    assert ("write", b"fine", _router.IDENTITY) == call.commands[0]
    assert "builtins.int" in caplog.text
    await server.stop(None)


async def test_cancel_event_cancels_the_task_and_releases_the_call() -> None:
    started = asyncio.Event()
    cancelled = asyncio.Event()

    async def wait(_request: bytes, _context: Any) -> bytes:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()
        return b""

    server, native = await _serve(grpc.unary_unary_rpc_method_handler(wait))
    call = native.call("/p.S/Call", b"")
    await started.wait()
    native.endpoint.push(_router.CANCEL, call.token, _router.CANCEL_CLIENT)
    await cancelled.wait()
    await eventually(lambda: call.commands)
    assert [("release",)] == call.commands
    assert {} == server._endpoint.receivers
    await server.stop(None)


async def test_handler_that_swallows_its_cancellation_still_releases() -> None:
    started = asyncio.Event()

    async def stubborn(_request: bytes, _context: Any) -> bytes:
        started.set()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.Event().wait()
        return b"too late"

    server, native = await _serve(grpc.unary_unary_rpc_method_handler(stubborn))
    call = native.call("/p.S/Call", b"")
    await started.wait()
    native.endpoint.push(_router.CANCEL, call.token, _router.CANCEL_DEADLINE)
    await eventually(lambda: call.commands)
    assert [("release",)] == call.commands
    await server.stop(None)


@pytest.mark.parametrize("is_async", [True, False])
async def test_handler_that_cancels_itself_is_answered_and_logged(
    caplog: pytest.LogCaptureFixture, is_async: bool
) -> None:
    async def give_up(_request: bytes, _context: Any) -> bytes:
        awaited = asyncio.ensure_future(asyncio.Event().wait())
        await asyncio.sleep(0)
        awaited.cancel()
        await awaited  # A mistake of the handler's own.
        return b""

    def give_up_on_a_thread(_request: bytes, _context: Any) -> bytes:
        raise asyncio.CancelledError

    handler: Any = give_up if is_async else give_up_on_a_thread
    server, native = await _serve(grpc.unary_unary_rpc_method_handler(handler))
    assert ("finish", CANCELLED) == (await _ended(native.call("/p.S/Call", b"")))[:2]
    await server.stop(None)
    (record,) = [each for each in caplog.records if each.levelname == "ERROR"]
    assert "/p.S/Call raised CancelledError, though nobody cancelled it" in record.message
    assert "give_up" in str(record.exc_text or caplog.text)


async def test_a_task_that_others_cancel_is_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    tasks: list[asyncio.Task[Any] | None] = []

    async def wait(_request: bytes, _context: Any) -> bytes:
        tasks.append(asyncio.current_task())
        await asyncio.Event().wait()
        return b""

    server, native = await _serve(grpc.unary_unary_rpc_method_handler(wait))
    call = native.call("/p.S/Call", b"")
    await eventually(lambda: tasks)
    assert tasks[0] is not None
    tasks[0].cancel()  # As the end of the loop does.
    assert ("finish", CANCELLED) == (await _ended(call))[:2]
    await server.stop(None)
    assert [] == [each for each in caplog.records if each.levelname == "ERROR"]


async def test_threads_keep_their_slot_until_they_return() -> None:
    entered = threading.Event()
    leave = threading.Event()

    def block(_request: bytes, _context: Any) -> bytes:
        entered.set()
        leave.wait(10)
        return b"late"

    server, native = await _serve(grpc.unary_unary_rpc_method_handler(block))
    call = native.call("/p.S/Call", b"")
    await eventually(entered.is_set)
    native.endpoint.push(_router.CANCEL, call.token, _router.CANCEL_DEADLINE)
    await eventually(
        lambda: server._endpoint.receivers[call.token].cancel_reason is not None  # type: ignore[attr-defined]
    )
    assert [] == call.commands
    leave.set()
    await eventually(lambda: call.commands)
    assert [("release",)] == call.commands
    await server.stop(None)


async def test_plain_generators_wait_for_room_without_a_thread() -> None:
    stepped: list[int] = []
    closed = threading.Event()

    def count(_request: bytes, _context: Any) -> Iterator[bytes]:
        try:
            for number in range(100):
                stepped.append(number)
                yield b"%d" % number
        finally:
            closed.set()

    server, native = await _serve(grpc.unary_stream_rpc_method_handler(count), default_threads=1)
    call = native.call("/p.S/Call", b"")
    call.room = False
    await eventually(lambda: stepped)
    other = native.call("/p.S/Call", b"")
    await _ended(other)
    assert 101 == len(stepped)  # the first call waits, the second has gone through
    call.room = True
    native.endpoint.push(_router.WRITABLE, call.token)
    assert ("finish", 0, "", (), None) == await _ended(call)
    assert 101 == len(call.commands)
    await eventually(closed.is_set)
    await server.stop(None)


async def test_async_generators_wait_for_room() -> None:
    stepped: list[int] = []

    async def count(_request: bytes, _context: Any) -> AsyncIterator[bytes]:
        for number in range(3):
            stepped.append(number)
            yield b"%d" % number

    server, native = await _serve(grpc.unary_stream_rpc_method_handler(count))
    call = native.call("/p.S/Call", b"")
    call.room = False
    await eventually(lambda: stepped)
    await asyncio.sleep(0)
    assert [0] == stepped
    call.room = True
    native.endpoint.push(_router.WRITABLE, call.token)
    assert ("finish", 0, "", (), None) == await _ended(call)
    await server.stop(None)


async def test_messages_of_the_calls_own_batch_are_not_lost() -> None:
    async def join(request_iterator: Any, _context: Any) -> bytes:
        return b"+".join([request async for request in request_iterator])

    server, native = await _serve(grpc.stream_unary_rpc_method_handler(join))
    call = native.call("/p.S/Call", None)
    native.endpoint.push(_router.MESSAGE, call.token, None, b"a")
    native.endpoint.push(_router.MESSAGE, call.token, None, b"bc")
    native.endpoint.push(_router.HALF_CLOSE, call.token)
    assert ("finish", 0, "", (), b"a+bc") == await _ended(call)
    assert 3 == call.taken_bytes
    await server.stop(None)


async def test_credit_returns_only_for_messages_that_were_taken() -> None:
    leave = asyncio.Event()

    async def lazy(request_iterator: Any, _context: Any) -> bytes:
        first: bytes = await anext(request_iterator)
        await leave.wait()
        return first

    server, native = await _serve(grpc.stream_unary_rpc_method_handler(lazy))
    call = native.call("/p.S/Call", None)
    for _ in range(5):
        native.endpoint.push(_router.MESSAGE, call.token, None, b"1234")
    await eventually(lambda: call.taken_bytes)
    assert 4 == call.taken_bytes
    leave.set()
    await _ended(call)
    await server.stop(None)


async def test_stop_waits_for_handlers_within_the_grace() -> None:
    leave = asyncio.Event()

    async def wait(request: bytes, _context: Any) -> bytes:
        await leave.wait()
        return request

    server, native = await _serve(grpc.unary_unary_rpc_method_handler(wait))
    call = native.call("/p.S/Call", b"x")
    stopping = asyncio.ensure_future(server.stop(60))
    await eventually(lambda: native.state == "draining")
    assert not stopping.done()
    leave.set()
    await asyncio.wait_for(stopping, 10)
    assert "stopped" == native.state
    assert ("finish", 0, "", (), b"x") == call.commands[-1]


def test_a_forgotten_server_ends_with_its_loop() -> None:
    async def main() -> Any:
        _, native = await _serve(grpc.unary_unary_rpc_method_handler(lambda r, c: r))
        return native

    assert "stopped" == asyncio.run(main()).state


async def test_servers_of_one_loop_come_and_go_without_a_trace() -> None:
    async def tell(request: bytes, _context: Any) -> bytes:
        return request

    handler: Any = grpc.unary_unary_rpc_method_handler(tell)
    first, first_native = await _serve(handler)
    for _ in range(3):
        second, second_native = await _serve(handler)
        assert second_native.endpoint is not first_native.endpoint
        assert ("reply", b"2") == await _ended(second_native.call("/p.S/Call", b"2"))
        assert ("reply", b"1") == await _ended(first_native.call("/p.S/Call", b"1"))
        await second.stop(None)
    await first.stop(None)
    assert [] == first._endpoint._close_callbacks
    again, again_native = await _serve(handler)
    assert again_native.endpoint is first_native.endpoint
    await again.stop(None)


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt()])
async def test_a_server_that_outlives_exits_fails_the_call_only(error: BaseException) -> None:
    """As replicas do: one request must not end those of all others."""

    async def leave(request: bytes, _context: Any) -> bytes:
        if request == b"leave":
            raise error
        return request

    server, native = await _serve(grpc.unary_unary_rpc_method_handler(leave), outlives_exits=True)
    assert ("finish", UNKNOWN) == (await _ended(native.call("/p.S/Call", b"leave")))[:2]
    assert ("reply", b"stay") == await _ended(native.call("/p.S/Call", b"stay"))
    await server.stop(None)
