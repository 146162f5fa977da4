"""Answers that come in pieces."""

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from typing import Any

import grpc
import pytest
from starlette.responses import StreamingResponse

import pyserve
from pyserve import _router
from tests.support.waiting import eventually
from tests.unit.replica.http.serving import answer_of, serving, written

INTERNAL, DEADLINE_EXCEEDED = 13, 4
TEXT = "text/plain; charset=utf-8"


@pytest.mark.parity("G-35")
@pytest.mark.parametrize("form", ["async", "plain", "returned", "response"])
async def test_the_first_piece_leaves_before_the_last_is_made(form: str) -> None:
    go_on = threading.Event()

    async def pieces() -> AsyncIterator[str]:
        yield "first "
        await asyncio.get_running_loop().run_in_executor(None, go_on.wait, 10)
        yield "last"

    def plain_pieces() -> Iterator[str]:
        yield "first "
        assert go_on.wait(10)
        yield "last"

    async def returned() -> Any:
        return pieces()

    async def response() -> Any:
        return StreamingResponse(pieces(), media_type="text/plain")

    forms = {"async": pieces, "plain": plain_pieces, "returned": returned, "response": response}
    async with serving(forms[form]) as client:
        call = client.begin()
        await eventually(lambda: b"first " == written(call).body)
        assert call.is_active()
        go_on.set()
        answer = await answer_of(call)
    assert (200, TEXT, b"first last") == (
        answer.status,
        answer.headers["content-type"],
        answer.body,
    )


@pytest.mark.parametrize(
    ("items", "kind", "body"),
    [
        (["a", "b"], TEXT, b"ab"),
        ([b"\x00", b"\x01"], "application/octet-stream", b"\x00\x01"),
        ([{"n": 1}, [2]], "application/x-ndjson", b'{"n":1}\n[2]\n'),
        ([], TEXT, b""),
    ],
)
async def test_pieces_are_texts_bytes_or_lines_of_json(
    items: list[Any], kind: str, body: bytes
) -> None:
    async def handler() -> AsyncIterator[Any]:
        for item in items:
            yield item

    async with serving(handler) as client:
        answer = await client()
    assert (200, kind, body) == (answer.status, answer.headers["content-type"], answer.body)


async def test_an_exception_before_the_first_piece_has_a_status_of_its_own() -> None:
    async def handler() -> AsyncIterator[str]:
        raise pyserve.Abort(grpc.StatusCode.NOT_FOUND, "nothing")
        yield ""

    async with serving(handler) as client:
        answer = await client()
    assert (0, 5, b"nothing") == (answer.status, answer.code, answer.body)


async def test_an_exception_after_it_breaks_the_answer_off(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def handler() -> AsyncIterator[str]:
        yield "a"
        raise ValueError("in the middle")

    async with serving(handler) as client:
        answer = await client()
    assert (200, INTERNAL) == (answer.status, answer.code)
    assert "in the middle" in caplog.text


@pytest.mark.parametrize("form", ["async", "response"])
async def test_a_client_that_goes_closes_the_generator(form: str) -> None:
    closed = asyncio.Event()

    async def pieces() -> AsyncIterator[str]:
        try:
            while True:
                yield "x"
        finally:
            closed.set()

    async def response() -> Any:
        return StreamingResponse(pieces())

    async with serving(pieces if form == "async" else response) as client:
        call = client.begin()
        call.room = False
        await eventually(lambda: b"x" == written(call).body)
        await client.leave(call)
        await asyncio.wait_for(closed.wait(), 10)
    assert ("release",) == call.commands[-1]


async def test_a_plain_generator_is_closed_after_its_step_and_on_a_thread() -> None:
    began, go_on = threading.Event(), threading.Event()
    closed: list[str] = []

    def handler() -> Iterator[str]:
        try:
            yield "x"
            began.set()
            assert go_on.wait(10)
            yield "y"
        finally:
            closed.append(threading.current_thread().name)

    async with serving(handler) as client:
        call = client.begin()
        await eventually(began.is_set)
        await client.leave(call)
        await asyncio.sleep(0)  # the turn in which its task is cancelled
        assert ("release",) not in call.commands
        go_on.set()
        await eventually(lambda: ("release",) in call.commands)
    assert ["pyserve-handler"] == [name.rpartition("_")[0] for name in closed]
    assert b"x" == written(call).body


async def test_items_are_made_at_the_clients_pace() -> None:
    made: list[int] = []

    async def handler() -> AsyncIterator[bytes]:
        for number in range(3):
            made.append(number)
            yield b"piece"

    async with serving(handler) as client:
        call = client.begin()
        call.room = False
        await eventually(lambda: made)
        await eventually(lambda: b"piece" == written(call).body)
        assert [0] == made
        call.room = True
        client.native.endpoint.push(_router.WRITABLE, call.token)
        await answer_of(call)
    assert [0, 1, 2] == made


async def test_a_stream_goes_on_without_its_client_when_it_wished_so() -> None:
    made: list[int] = []
    began, go_on = asyncio.Event(), asyncio.Event()

    async def handler() -> AsyncIterator[str]:
        yield "x"
        began.set()
        await go_on.wait()
        for number in range(3):
            made.append(number)
            yield "y"

    async with serving(handler) as client:
        call = client.begin(headers={"x-request-disconnect-disabled": "?1"})
        await began.wait()
        await client.leave(call)
        go_on.set()
        await eventually(lambda: ("release",) in call.commands)
    assert [0, 1, 2] == made


async def test_a_stream_has_its_methods_timeout() -> None:
    class Slow:
        @pyserve.method(timeout_s=0.01)
        async def __call__(self) -> AsyncIterator[str]:
            await asyncio.Event().wait()
            yield "never"

    async with serving(Slow()) as client:
        assert DEADLINE_EXCEEDED == (await client()).code


@pytest.mark.parametrize(
    ("length", "expected"), [("2", (200, INTERNAL)), ("4", (200, INTERNAL)), ("abc", (500, 0))]
)
async def test_a_response_that_streams_another_length_breaks_off(
    length: str, expected: tuple[int, int], caplog: pytest.LogCaptureFixture
) -> None:
    async def pieces() -> AsyncIterator[bytes]:
        yield b"ab"
        yield b"c"

    async def response() -> Any:
        return StreamingResponse(pieces(), headers={"content-length": length})

    async with serving(response) as client:
        answer = await client()
        head = await client(method="HEAD")
    assert expected == (answer.status, answer.code)
    assert "content-length" in caplog.text
    assert 0 == head.code
