"""Events that the server queues for plain HTTP requests, seen through the fake ring."""

import asyncio
import gc
import weakref
from collections.abc import Awaitable, Callable
from typing import Any

import grpc
import pytest

from pyserve import _router
from pyserve.aio import ClientDisconnected, HttpCall, HttpFunction, ServerSettings
from pyserve.aio._server import Server
from pyserve.request import current_request
from tests.support.waiting import eventually
from tests.unit.aio.fake_ring import FakeHttpHead, FakeServer, FakeServerCall

pytestmark = pytest.mark.usefixtures("fake_ring")

INTERNAL = 13


async def _serve(
    handler: Callable[[HttpCall], Awaitable[None]], **settings: Any
) -> tuple[Server, FakeServer]:
    server = Server(settings=ServerSettings(http=handler, **settings))
    await server.start()
    native: Any = server.native
    return server, native


def _request(native: FakeServer, body: bytes | None = b"", **head: Any) -> FakeServerCall:
    return native.request(body, FakeHttpHead(**head))


async def _ended(call: FakeServerCall) -> tuple[Any, ...]:
    await eventually(lambda: not call.is_active())
    return call.commands[-1]


async def test_a_whole_answer_is_one_command() -> None:
    async def handler(http: HttpCall) -> None:
        http.respond(201, [(b"x", b"y")], await http.body())

    server, native = await _serve(handler)
    call = _request(native, b"body")
    assert ("respond", 201, ((b"x", b"y"),), b"body") == await _ended(call)
    assert 1 == len(call.commands)
    assert {} == server._endpoint.receivers
    await server.stop(None)


async def test_an_ended_request_is_freed_without_the_collector() -> None:
    requests: list[weakref.ref[HttpCall]] = []

    async def handler(http: HttpCall) -> None:
        requests.append(weakref.ref(http))
        http.respond(200, (), b"")

    server, native = await _serve(handler)
    gc.disable()
    try:
        await _ended(_request(native))
        await eventually(lambda: requests[0]() is None)
    finally:
        gc.enable()
    await server.stop(None)


async def test_a_streamed_body_is_read_in_pieces_and_its_window_returned() -> None:
    pieces: list[bytes] = []

    async def handler(http: HttpCall) -> None:
        while piece := await http.read():
            pieces.append(piece)
        http.respond(200, (), b"")

    server, native = await _serve(handler)
    call = _request(native, None)
    for piece in (b"one", b"", b"three"):
        native.endpoint.push(_router.MESSAGE, call.token, None, piece)
    native.endpoint.push(_router.HALF_CLOSE, call.token)
    await _ended(call)
    assert [b"one", b"three"] == pieces
    assert 8 == call.taken_bytes
    await server.stop(None)


async def test_the_body_is_whole_after_pieces_and_read_again_from_memory() -> None:
    seen: list[bytes] = []

    async def handler(http: HttpCall) -> None:
        seen.extend([await http.body(), await http.body(), await http.read()])
        http.respond(200, (), b"")

    server, native = await _serve(handler)
    call = _request(native, None)
    native.endpoint.push(_router.MESSAGE, call.token, None, b"one ")
    native.endpoint.push(_router.MESSAGE, call.token, None, b"two")
    native.endpoint.push(_router.HALF_CLOSE, call.token)
    await _ended(call)
    assert [b"one two", b"one two", b""] == seen
    await server.stop(None)


async def test_the_current_request_has_id_model_and_deadline_of_the_headers() -> None:
    seen: list[Any] = []

    async def handler(http: HttpCall) -> None:
        seen.append(current_request())
        http.respond(200, (), b"")

    server, native = await _serve(handler, application="app", deployment="Dep")
    headers = [(b"x-request-id", b"abc"), (b"serve-multiplexed_model-id", b"m")]
    call = native.request(b"", FakeHttpHead(headers=headers))
    call.remaining_s = 60.0
    await _ended(call)
    (request,) = seen
    assert ("abc", "m", "app", "Dep") == (
        request.request_id,
        request.multiplexed_model_id,
        request.application,
        request.deployment,
    )
    assert 50.0 < request.time_remaining() <= 60.0
    assert request.is_root
    assert request.is_ended
    await server.stop(None)


@pytest.mark.parametrize("reason", [_router.CANCEL_CLIENT, _router.CANCEL_DEADLINE])
async def test_a_cancel_ends_the_handler_and_its_child_calls(reason: int) -> None:
    child = _Child()
    began = asyncio.Event()
    ended: list[BaseException] = []

    async def handler(http: HttpCall) -> None:
        request = current_request()
        assert request is not None
        request.add_child(child)
        began.set()
        try:
            await asyncio.Event().wait()
        except BaseException as error:
            ended.append(error)
            raise

    server, native = await _serve(handler)
    call = _request(native)
    await began.wait()
    native.endpoint.push(_router.CANCEL, call.token, reason)
    await eventually(lambda: call.commands)
    assert [("release",)] == call.commands
    assert [asyncio.CancelledError] == [type(each) for each in ended]
    assert child.is_cancelled
    await server.stop(None)


async def test_a_request_may_outlive_its_client_but_not_its_deadline() -> None:
    began, go_on = asyncio.Event(), asyncio.Event()
    child = _Child()

    async def handler(http: HttpCall) -> None:
        request = current_request()
        assert request is not None
        request.add_child(child)
        began.set()
        await go_on.wait()
        with pytest.raises(ClientDisconnected):
            await http.write(b"x")

    server, native = await _serve(handler)
    wish = [(b"x-request-disconnect-disabled", b"?1")]
    call = _request(native, headers=wish)
    await began.wait()
    native.endpoint.push(_router.CANCEL, call.token, _router.CANCEL_CLIENT)
    receiver: Any = server._endpoint.receivers[call.token]
    await receiver.disconnected()
    assert not child.is_cancelled
    go_on.set()
    await eventually(lambda: call.commands)
    assert [("release",)] == call.commands

    began.clear()
    go_on.clear()
    late = _request(native, headers=wish)
    late.remaining_s = 0.0
    await began.wait()
    native.endpoint.push(_router.CANCEL, late.token, _router.CANCEL_CLIENT)
    await eventually(lambda: late.commands)
    assert child.is_cancelled
    await server.stop(None)


@pytest.mark.parametrize("remaining_s", [0.0, 3.0])
async def test_a_timeout_is_the_callers_where_its_deadline_has_passed(
    remaining_s: float, caplog: pytest.LogCaptureFixture
) -> None:
    async def handler(_http: HttpCall) -> None:
        raise TimeoutError

    server, native = await _serve(handler)
    call = _request(native)
    call.remaining_s = remaining_s
    await _ended(call)
    is_late = remaining_s == 0.0
    code = grpc.StatusCode.DEADLINE_EXCEEDED if is_late else grpc.StatusCode.INTERNAL
    assert code.value[0] in call.commands[-1]
    assert is_late == ("unexpected" not in caplog.text)
    await server.stop(None)


async def test_a_cancel_in_the_turn_of_the_arrival_lets_the_request_go() -> None:
    async def handler(http: HttpCall) -> None:
        await asyncio.Event().wait()  # From Python 3.12 on, it has begun when the cancel comes.
        http.respond(200, (), b"")

    server, native = await _serve(handler)
    call = _request(native)
    native.endpoint.push(_router.CANCEL, call.token, _router.CANCEL_CLIENT)
    await eventually(lambda: call.commands)
    assert [("release",)] == call.commands
    assert {} == server._endpoint.receivers
    await server.stop(None)


async def test_write_waits_for_room() -> None:
    written = asyncio.Event()

    async def handler(http: HttpCall) -> None:
        http.start(200, ())
        await http.write(b"1")
        written.set()
        http.end()

    server, native = await _serve(handler)
    call = _request(native)
    call.room = False
    await eventually(lambda: ("write", b"1", 0) in call.commands)
    assert not written.is_set()
    call.room = True
    native.endpoint.push(_router.WRITABLE, call.token)
    assert ("finish", 0, "", (), None) == await _ended(call)
    await server.stop(None)


async def test_a_write_that_waits_says_that_the_client_has_gone() -> None:
    failures: list[BaseException] = []

    async def handler(http: HttpCall) -> None:
        http.start(200, ())
        try:
            await http.write(b"1")
        except OSError as error:
            failures.append(error)

    server, native = await _serve(handler)
    call = _request(native, headers=[(b"x-request-disconnect-disabled", b"?1")])
    call.room = False
    await eventually(lambda: ("write", b"1", 0) in call.commands)
    native.endpoint.push(_router.CANCEL, call.token, _router.CANCEL_CLIENT)
    await eventually(lambda: ("release",) in call.commands)
    assert [ClientDisconnected] == [type(each) for each in failures]
    await server.stop(None)


async def test_exceptions_become_a_failure_without_their_text(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def handler(http: HttpCall) -> None:
        raise ValueError("a secret")

    server, native = await _serve(handler)
    command = await _ended(_request(native))
    assert ("finish", INTERNAL) == command[:2]
    assert "secret" not in command[2]
    assert "a secret" in caplog.text
    await server.stop(None)


def _respond(status: int) -> Callable[[HttpCall, Any], None]:
    return lambda http, told: http.respond(status, (), str(told).encode())


def _in_a_handler(handler: HttpFunction) -> Callable[[HttpCall], Awaitable[None]]:
    async def handle(http: HttpCall) -> None:
        await handler(http)

    return handle


@pytest.mark.parametrize("is_direct", [True, False])
async def test_a_function_is_answered_for_as_a_handler_is(is_direct: bool) -> None:
    async def function(argument: bytes) -> bytes:
        if argument == b"wrong":
            raise ValueError("wrong")
        return argument * 2

    async def prepare(http: HttpCall) -> bool:
        if await http.body() == b"no":
            http.respond(400, (), b"refused")
            return False
        return True

    def argument(http: HttpCall) -> bytes:
        assert http.whole_body is not None
        return http.whole_body

    handler = HttpFunction(function, prepare, argument, _respond(200), _respond(500))
    server, native = await _serve(handler if is_direct else _in_a_handler(handler))

    assert ("respond", 200, (), b"b'aa'") == await _ended(_request(native, b"a"))
    assert ("respond", 500, (), b"wrong") == await _ended(_request(native, b"wrong"))
    for body, expected in [(b"no", (400, (), b"refused")), (b"a", (200, (), b"b'aa'"))]:
        call = _request(native, None)
        native.endpoint.push(_router.MESSAGE, call.token, None, body)
        native.endpoint.push(_router.HALF_CLOSE, call.token)
        assert ("respond", *expected) == await _ended(call)
        assert ["respond"] == [name for name, *_ in call.commands]
    await eventually(lambda: not server._endpoint.receivers)
    await server.stop(None)


async def test_a_handler_that_forgets_to_answer_is_answered_for(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def handler(http: HttpCall) -> None:
        http.start(200, ())

    server, native = await _serve(handler)
    assert ("finish", INTERNAL) == (await _ended(_request(native)))[:2]
    assert "without an answer's end" in caplog.text
    await server.stop(None)


async def test_an_exit_fails_its_request_only(caplog: pytest.LogCaptureFixture) -> None:
    async def handler(http: HttpCall) -> None:
        raise SystemExit(3)

    server, native = await _serve(handler, outlives_exits=True)
    assert ("finish", INTERNAL) == (await _ended(_request(native)))[:2]
    assert ("finish", INTERNAL) == (await _ended(_request(native)))[:2]
    assert "unexpected SystemExit" in caplog.text
    await server.stop(None)


async def test_stop_waits_for_requests_within_its_grace() -> None:
    go_on = asyncio.Event()

    async def handler(http: HttpCall) -> None:
        await go_on.wait()
        http.respond(200, (), b"")

    server, native = await _serve(handler)
    call = _request(native)
    await eventually(lambda: call.token in server._endpoint.receivers)
    stopping = asyncio.create_task(server.stop(30.0))
    await asyncio.sleep(0)
    go_on.set()
    await stopping
    assert ("respond", 200, (), b"") == call.commands[-1]


async def test_stop_ends_what_goes_on_after_an_answer() -> None:
    ended: list[str] = []

    async def handler(http: HttpCall) -> None:
        http.respond(200, (), b"")
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            ended.append("cancelled")
            raise

    server, native = await _serve(handler)
    call = _request(native)
    await _ended(call)
    await server.stop(0)
    assert ["cancelled"] == ended
    assert [("respond", 200, (), b"")] == call.commands


class _Child:
    is_cancelled = False

    def cancel(self) -> None:
        self.is_cancelled = True
