"""Messages between the native side and an ASGI application, in both directions."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from pyserve import _router
from pyserve.replica.asgi import http
from tests.support.waiting import eventually
from tests.unit.replica.asgi.serving import serving

START = {"type": "http.response.start", "status": 200, "headers": []}
INTERNAL = 13
FAILURE = (
    "respond",
    500,
    ((b"content-type", b"text/plain; charset=utf-8"), (b"content-length", b"21")),
    b"Internal Server Error",
)


def _body(data: bytes = b"", *, more: bool = False) -> dict[str, Any]:
    return {"type": "http.response.body", "body": data, "more_body": more}


async def test_one_body_message_is_one_command() -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        headers = [(b"Content-Length", b"2"), [b"x-a", b"B"]]
        await send({**START, "status": 201, "headers": headers})
        await send(_body(b"ok"))

    async with serving(app) as served:
        call = served.request()
        commands = await served.released(call)
        assert [("respond", 201, ((b"Content-Length", b"2"), (b"x-a", b"B")), b"ok")] == commands


async def test_a_head_leaves_in_its_turn_when_no_body_follows() -> None:
    go = asyncio.Event()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send(START)
        await go.wait()
        await send(_body(b"late"))

    async with serving(app) as served:
        call = served.request()
        await eventually(lambda: call.commands)
        assert [("start_response", 200, ())] == call.commands
        go.set()
        commands = await served.released(call)
        assert [("write", b"late", 0), ("finish", 0, "", (), None)] == commands[1:]


async def test_a_stream_waits_for_room() -> None:
    sent: list[int] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send(START)
        for number in range(3):
            await send(_body(b"x", more=True))
            sent.append(number)
        await send(_body())

    async with serving(app) as served:
        call = served.request()
        call.room = False
        await eventually(lambda: 2 == len(call.commands))
        assert [] == sent
        call.room = True
        served.native.endpoint.push(_router.WRITABLE, call.token)
        commands = await served.released(call)
        assert ["start_response", "write", "write", "write", "finish"] == [
            command[0] for command in commands
        ]


async def test_a_body_that_came_whole_is_one_message_and_then_the_client_is_watched() -> None:
    seen: list[Any] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        seen.append(await receive())
        waiting = asyncio.create_task(receive())
        await send(START)
        await send(_body())
        seen.append(await waiting)
        seen.append(await receive())

    async with serving(app) as served:
        await served.released(served.request(b"body"))
    end = {"type": "http.disconnect"}
    assert [{"type": "http.request", "body": b"body", "more_body": False}, end, end] == seen


async def test_a_streamed_body_comes_in_pieces() -> None:
    seen: list[Any] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        more = True
        while more:
            message = await receive()
            more = message["more_body"]
            seen.append((message["body"], more))
        await send(START)
        await send(_body())

    async with serving(app) as served:
        call = served.request(None)
        served.push(call, b"one")
        served.push(call, b"two")
        served.native.endpoint.push(_router.HALF_CLOSE, call.token)
        await served.released(call)
    assert [(b"one", True), (b"two", True), (b"", False)] == seen


@pytest.mark.parity("G-36")
async def test_a_client_that_leaves_cancels_the_application_in_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(http, "LEAVE_TIMEOUT_S", 0.01)
    began = asyncio.Event()
    ended: list[BaseException] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        began.set()
        try:
            await asyncio.Event().wait()
        except BaseException as error:
            ended.append(error)
            raise

    async with serving(app) as served:
        call = served.request()
        await began.wait()
        served.cancel(call)
        assert [("release",)] == await served.released(call)
    assert [asyncio.CancelledError] == [type(error) for error in ended]


@pytest.mark.parity("G-36")
async def test_a_client_may_wish_its_request_finished_without_it() -> None:
    began, go = asyncio.Event(), asyncio.Event()
    done: list[str] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        watching = asyncio.create_task(receive())
        began.set()
        await go.wait()
        assert not watching.done()
        await send(START)
        await send(_body(b"for nobody"))
        await asyncio.wait_for(watching, 30)
        done.append("done")

    async with serving(app) as served:
        call = served.request(headers=[(b"x-request-disconnect-disabled", b"?1")])
        await began.wait()
        served.cancel(call)
        await asyncio.sleep(0)
        go.set()
        assert [("release",)] == await served.released(call)
    assert ["done"] == done


async def test_an_exception_before_the_head_is_500(caplog: pytest.LogCaptureFixture) -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        raise ValueError("secret")

    async with serving(app) as served:
        assert [FAILURE] == await served.released(served.request(target=b"/x?y"))
    (record,) = [each for each in caplog.records if each.levelno == logging.ERROR]
    assert "POST /x: the application raised ValueError" == record.getMessage()
    assert record.exc_info is not None


@pytest.mark.parametrize("escape", ["%20", "%s", "%600000000s", "{0}", "%%"])
async def test_the_path_of_a_failure_is_written_as_it_came(
    escape: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        raise ValueError("secret")

    async with serving(app) as served:
        await served.released(served.request(target=f"/items/{escape}".encode()))
    (record,) = [each for each in caplog.records if each.levelno == logging.ERROR]
    # A format of a client's choice would be as wide as it says.
    assert "/items/" not in record.msg
    assert f"POST /items/{escape}: the application raised ValueError" == record.getMessage()


async def test_an_exception_after_the_head_breaks_the_answer_off() -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send(START)
        raise ValueError("secret")

    async with serving(app) as served:
        commands = await served.released(served.request())
    assert [("start_response", 200, ()), ("finish", INTERNAL, "", (), None)] == commands


async def test_an_application_that_leaves_without_an_answer_is_answered_for() -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["path"] == "/half":
            await send(START)
            await send(_body(b"half", more=True))

    async with serving(app) as served:
        assert [FAILURE] == await served.released(served.request())
        commands = await served.released(served.request(target=b"/half"))
    assert ["start_response", "write", "finish"] == [command[0] for command in commands]
    assert INTERNAL == commands[-1][1]


async def test_requests_without_an_answer_are_few_lines_of_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def app(scope: Any, receive: Any, send: Any) -> object:
        return 1 if scope["path"] == "/one" else None

    async with serving(app) as served:
        for number in range(40):
            for target in (b"/one", f"/{number}".encode()):
                assert [FAILURE] == await served.released(served.request(target=target))
    # The first of each kind, twenty others at once, and what has come back meanwhile.
    assert [
        "POST /one: the application returned 1, which has no meaning; return None",
        "POST /0: the application returned without an answer's end",
    ] == caplog.messages[:2]
    assert 22 <= len(caplog.messages) < 60


async def test_one_request_that_exits_leaves_the_others_alone() -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        raise SystemExit(3)

    async with serving(app) as served:
        assert [FAILURE] == await served.released(served.request())


@pytest.mark.parametrize(
    ("messages", "text"),
    [
        ([_body()], "expected 'http.response.start'"),
        ([START, START], "expected 'http.response.body'"),
        ([START, _body(), _body()], "after the answer's end"),
        ([{**START, "headers": [(b"content-length", b"1")]}, _body(b"ab")], "longer"),
        ([{**START, "headers": [(b"content-length", b"3")]}, _body(b"ab")], "shorter"),
        (
            [{**START, "headers": [(b"content-length", b"-2")]}, _body(b"ab")],
            "content-length is '-2'",
        ),
        ([{**START, "headers": [(b"Content-Length", b"+2")]}, _body(b"ab")], "use digits alone"),
        ([{**START, "headers": [(b"content-length", b"0_2")]}, _body(b"ab")], "use digits alone"),
        ([{**START, "headers": [(b"content-length", b"")]}, _body(b"ab")], "use digits alone"),
        (
            [
                {**START, "headers": [(b"content-length", b"2"), (b"Content-Length", b"3")]},
                _body(b"ab"),
            ],
            "two different",
        ),
    ],
)
async def test_messages_out_of_their_turn_are_refused(messages: list[Any], text: str) -> None:
    refused: list[str] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        try:
            for message in messages:
                await send(message)
        except RuntimeError as error:
            refused.append(str(error))
            raise

    async with serving(app) as served:
        await served.released(served.request())
    assert 1 == len(refused)
    assert text in refused[0]


async def test_a_head_request_gets_no_body() -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        headers = [(b"content-length", b"5")] if scope["path"] == "/length" else []
        await send({**START, "headers": headers})
        await send(_body(b"body!"))

    async with serving(app) as served:
        commands = await served.released(served.request(method="HEAD", target=b"/length"))
        assert [("respond", 200, ((b"content-length", b"5"),), b"")] == commands
        commands = await served.released(served.request(method="HEAD"))
        assert [("start_response", 200, ()), ("finish", 0, "", (), None)] == commands


@pytest.mark.parametrize("method", ["GET", "HEAD"])
@pytest.mark.parametrize("status", [204, 205, 304])
@pytest.mark.parametrize("length", [b"0", b"4", b"1234"])
@pytest.mark.parametrize("bodies", [[b""], [b"body"], [b"", b""], [b"bo", b"dy"], [b"x"] * 5])
async def test_the_length_of_an_answer_without_a_body_is_none_of_a_body(
    method: str, status: int, length: bytes, bodies: list[bytes]
) -> None:
    """RFC 9110, 8.6 and 15.4.5: a 304 says what a 200 would have had; what is sent is dropped."""
    done: list[str] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({**START, "status": status, "headers": [(b"content-length", length)]})
        for body in bodies[:-1]:
            await send(_body(body, more=True))
        await send(_body(bodies[-1]))
        done.append("went on")

    async with serving(app) as served:
        commands = await served.released(served.request(method=method))
    assert ["went on"] == done
    headers = ((b"content-length", length),)
    if len(bodies) == 1:
        assert [("respond", status, headers, b"")] == commands
    else:
        assert [("start_response", status, headers), ("finish", 0, "", (), None)] == commands


async def test_pieces_of_an_answer_without_a_body_are_dropped_after_its_end() -> None:
    """The native side ends such an answer with its head, as if the client had left."""
    done: list[str] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({**START, "status": 304})
        await send(_body(b"one", more=True))
        await left.wait()
        await send(_body(b"two", more=True))
        await send(_body(b"three"))
        done.append("went on")

    left = asyncio.Event()
    async with serving(app) as served:
        call = served.request()
        await eventually(lambda: call.commands)
        served.cancel(call)
        await eventually(lambda: not served.native.endpoint.waiting)
        left.set()
        assert ("release",) == (await served.released(call))[-1]
    assert ["went on"] == done


async def test_the_scope_is_that_of_uvicorn() -> None:
    seen: list[Any] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            scope["state"]["key"] = "value"
            raise NotImplementedError
        scope["state"]["key2"] = "of this request"
        seen.append(scope)
        await send(START)
        await send(_body())

    headers = [(b"host", b"[::1]:81"), (b"a", b"1"), (b"a", b"2")]
    head: dict[str, Any] = {
        "method": "PUT",
        "target": b"/app/gr%C3%B6%2F%FF?q=%20&r",
        "version": "2",
        "scheme": "https",
        "client": ("::1", 5),
        "root_path": "/app",
        "headers": headers,
    }
    async with serving(app, lifespan=True) as served:
        await served.released(served.request(**head))
        await served.released(served.request(headers=[(b"host", b"name")]))
    assert {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "2",
        "server": ("::1", 81),
        "client": ("::1", 5),
        "scheme": "https",
        "method": "PUT",
        "root_path": "/app",
        "path": "/app/grö/\ufffd",
        "raw_path": b"/app/gr%C3%B6%2F%FF",
        "query_string": b"q=%20&r",
        "headers": headers,
        "state": {"key": "value", "key2": "of this request"},
        "extensions": {"http.response.pathsend": {}},
    } == seen[0]
    assert ("name", 80) == seen[1]["server"]
