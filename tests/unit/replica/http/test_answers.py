"""What becomes of results and exceptions."""

import asyncio
import datetime
import decimal
import enum
import threading
import uuid
from collections import namedtuple
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import fastapi
import grpc
import numpy as np
import pydantic
import pytest
from starlette.background import BackgroundTask
from starlette.exceptions import HTTPException
from starlette.responses import FileResponse, JSONResponse, Response

import pyserve
from pyserve.errors import RequestTimeout
from pyserve.request import get_request_context
from tests.support.waiting import eventually
from tests.unit.replica.http.serving import Answer, answer_of, serving, written

DEADLINE_EXCEEDED, NOT_FOUND = 4, 5
TEXT = "text/plain; charset=utf-8"
JSON = "application/json"
Pair = namedtuple("Pair", "left right")


@dataclass
class Item:
    name: str


class Model(pydantic.BaseModel):
    when: datetime.date


@dataclass
class Long:
    number: int
    _hidden: int = 1


@dataclass(slots=True)
class Slots:
    number: int
    _hidden: int = 1


class Wide(enum.Enum):
    LONG = 2**64


async def _answer(result: Any, **request: Any) -> Answer:
    async def handler() -> Any:
        return result

    async with serving(handler) as client:
        return await client(**request)


@pytest.mark.parity("S-12")
@pytest.mark.parametrize(
    ("result", "kind", "body"),
    [
        ({"a": [1, None]}, JSON, b'{"a":[1,null]}'),
        ([], JSON, b"[]"),
        (3.5, JSON, b"3.5"),
        (True, JSON, b"true"),
        ({1: "int key"}, JSON, b'{"1":"int key"}'),
        ((1, 2), JSON, b"[1,2]"),
        (Pair(1, 2), JSON, b"[1,2]"),
        ({"s": {1}}, JSON, b'{"s":[1]}'),
        (Item("x"), JSON, b'{"name":"x"}'),
        (Model(when=datetime.date(2020, 1, 2)), JSON, b'{"when":"2020-01-02"}'),
        ({"m": Model(when=datetime.date(2020, 1, 2))}, JSON, b'{"m":{"when":"2020-01-02"}}'),
        (np.arange(3), JSON, b"[0,1,2]"),
        (np.arange(4).reshape(2, 2).T, JSON, b"[[0,2],[1,3]]"),
        ({"n": np.float32(0.5), "nan": float("nan")}, JSON, b'{"n":0.5,"nan":null}'),
        (decimal.Decimal("1.5"), JSON, b"1.5"),
        (datetime.timedelta(minutes=1), JSON, b"60.0"),
        (uuid.UUID(int=0), JSON, b'"00000000-0000-0000-0000-000000000000"'),
        ({"p": Path("a/b")}, JSON, b'{"p":"a/b"}'),
        ({"n": 2**70}, JSON, b'{"n":1180591620717411303424}'),
        (-(2**63) - 1, JSON, b"-9223372036854775809"),
        ([(1, {2: [2**64]})], JSON, b'[[1,{"2":[18446744073709551616]}]]'),
        ({2**64: None}, JSON, b'{"18446744073709551616":null}'),
        ({"s": {2**64}, "w": Path("a")}, JSON, b'{"s":[18446744073709551616],"w":"a"}'),
        (Long(2**64), JSON, b'{"number":18446744073709551616}'),
        (Slots(2**64), JSON, b'{"number":18446744073709551616}'),
        (Wide.LONG, JSON, b"18446744073709551616"),
        (decimal.Decimal(10**30), JSON, b"1" + b"0" * 30),
        (np.array([2**64, 1], dtype=object), JSON, b"[18446744073709551616,1]"),
        (
            [2**64, np.arange(2), float("nan"), True],
            JSON,
            b"[18446744073709551616,[0,1],null,true]",
        ),
        ("tëxt", TEXT, "tëxt".encode()),
        (b"\x00", "application/octet-stream", b"\x00"),
        (memoryview(b"view"), "application/octet-stream", b"view"),
        (None, "text/plain", b""),
    ],
)
async def test_results_have_their_kind_of_body(result: Any, kind: str, body: bytes) -> None:
    answer = await _answer(result)
    assert (200, kind, body) == (answer.status, answer.headers["content-type"], answer.body)


async def test_what_is_no_json_is_an_error_that_names_it(caplog: pytest.LogCaptureFixture) -> None:
    answer = await _answer({"lock": threading.Lock()})
    assert (500, b"Internal Server Error") == (answer.status, answer.body)
    assert "_thread.lock is none; return a dict" in caplog.text


async def test_a_long_number_hides_nothing_else_that_is_no_json(
    caplog: pytest.LogCaptureFixture,
) -> None:
    ring: list[Any] = [2**64]
    ring.append(ring)
    cases = [
        ([2**64, threading.Lock()], "_thread.lock is none; return a dict"),
        (ring, "holds itself"),
        (10**5000, "4300"),
    ]
    for value, text in cases:
        caplog.clear()
        answer = await _answer(value)
        assert (500, b"Internal Server Error") == (answer.status, answer.body)
        assert "the result is not JSON: " in caplog.text
        assert text in caplog.text


@pytest.mark.parity("S-12")
async def test_a_starlette_response_is_sent_as_it_is() -> None:
    answer = await _answer(JSONResponse({"a": 1}, status_code=201, headers={"X-Name": "v"}))
    assert (201, {"a": 1}, "v") == (answer.status, answer.json(), answer.headers["x-name"])
    assert "7" == answer.headers["content-length"]
    empty = await _answer(Response(status_code=204))
    assert (204, b"") == (empty.status, empty.body)


async def test_a_background_task_runs_after_the_answer_and_keeps_the_request() -> None:
    done, go_on = [], asyncio.Event()

    async def later() -> None:
        await go_on.wait()
        done.append(get_request_context().request_id)

    async def handler() -> Any:
        return Response(b"x", background=BackgroundTask(later))

    async with serving(handler) as client:
        call = client.begin(headers={"x-request-id": "r"})
        assert b"x" == (await answer_of(call)).body
        assert [] == done
        go_on.set()
        await eventually(lambda: done)
    assert ["r"] == done


async def test_a_file_is_sent_and_ranges_of_it(tmp_path: Path) -> None:
    path = tmp_path / "data.txt"
    path.write_bytes(b"0123456789")
    async with serving(lambda: FileResponse(path)) as client:
        call = client.begin(method="GET")
        whole = await answer_of(call)
        assert ("send_file", 0, 10) in call.commands
    part = await _answer(FileResponse(path), method="GET", headers={"range": "bytes=2-4"})
    assert (200, "10") == (whole.status, whole.headers["content-length"])
    assert (206, b"234") == (part.status, part.body)


async def test_a_coroutine_that_a_handler_forgot_to_await_is_awaited() -> None:
    async def child() -> dict[str, int]:
        return {"a": 1}

    def handler() -> Any:
        return child()

    async with serving(handler) as client:
        assert {"a": 1} == (await client()).json()


@pytest.mark.parametrize("is_plain_def", [False, True])
async def test_a_websocket_is_refused(is_plain_def: bool) -> None:
    async def handler() -> str:
        return "with this it would be accepted"

    def plain_def() -> str:
        return "with this too"

    async with serving(plain_def if is_plain_def else handler) as client:
        # Its frames come as a stream.
        assert 400 == (await client(None, method="GET", is_websocket=True)).status


# --- threads --------------------------------------------------------------------------------


async def test_a_def_runs_on_a_thread_with_its_request() -> None:
    def handler(n: int) -> Any:
        return [n, threading.current_thread().name, get_request_context().request_id]

    async with serving(handler) as client:
        n, thread, request_id = (await client(json=1, headers={"x-request-id": "r"})).json()
    assert (1, "r") == (n, request_id)
    assert thread.startswith("pyserve-handler")


async def test_a_def_keeps_its_place_until_its_thread_is_done() -> None:
    began, go_on = threading.Event(), threading.Event()

    def handler() -> None:
        began.set()
        assert go_on.wait(10)

    async with serving(handler) as client:
        call = client.begin()
        await eventually(began.is_set)
        await client.leave(call)
        await asyncio.sleep(0)  # the turn in which its task is cancelled
        assert [] == call.commands
        go_on.set()
        await eventually(lambda: call.commands)
    assert [("release",)] == call.commands


async def test_a_def_that_raises_stop_iteration_is_an_error(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def handler() -> None:
        raise StopIteration

    async with serving(handler) as client:
        assert 500 == (await client()).status
    assert "a handler raised StopIteration" in caplog.text


# --- exceptions -----------------------------------------------------------------------------


@pytest.mark.parametrize("remaining_s", [0.0, 3.0, None])
async def test_a_timeout_is_the_callers_where_its_deadline_has_passed(
    remaining_s: float | None, caplog: pytest.LogCaptureFixture
) -> None:
    async def handler() -> None:
        raise TimeoutError

    async with serving(handler) as client:
        call = client.begin()
        call.remaining_s = remaining_s
        answer = await answer_of(call)
    is_late = remaining_s == 0.0
    assert (
        (DEADLINE_EXCEEDED, 0) == (answer.code, answer.status) if is_late else 500 == answer.status
    )
    assert is_late == ("unexpected" not in caplog.text)


async def _failure(error: BaseException, *, development: bool = False) -> Answer:
    async def handler() -> None:
        raise error

    async with serving(handler, development=development) as client:
        return await client()


async def test_exceptions_keep_their_text_outside_of_development(
    caplog: pytest.LogCaptureFixture,
) -> None:
    hidden = await _failure(ValueError("a secret"))
    shown = await _failure(ValueError("a secret"), development=True)
    assert {(500, b"Internal Server Error")} == {
        (each.status, each.body) for each in (hidden, shown)
    }
    assert "secret" not in hidden.headers["x-pyserve-error"]
    assert "ValueError: a secret" == shown.headers["x-pyserve-error"]
    assert "a secret" in caplog.text


@pytest.mark.parametrize(
    "error",
    [
        HTTPException(503, headers={"x-euro": "€"}),
        HTTPException(404, detail={"lock": threading.Lock()}),  # type: ignore[arg-type]
    ],
)
async def test_an_exception_that_cannot_be_sent_is_an_unexpected_one(
    error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    answer = await _failure(error)
    assert (500, b"Internal Server Error") == (answer.status, answer.body)
    assert "HTTPException in POST / cannot be answered with" in caplog.text


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("two\r\nx-own: 1", "ValueError: two  x-own: 1"),
        ("\0\x7f\x1b[0m", "ValueError:    [0m"),
        ("größer €", r"ValueError: gr\xf6\xdfer \u20ac"),
    ],
)
async def test_the_text_of_an_exception_is_one_line_of_a_header(text: str, told: str) -> None:
    answer = await _failure(ValueError(text), development=True)
    assert told == answer.headers["x-pyserve-error"]


async def test_abort_chooses_the_status_and_its_text() -> None:
    answer = await _failure(pyserve.Abort(grpc.StatusCode.NOT_FOUND, "no such thing"))
    assert (NOT_FOUND, b"no such thing") == (answer.code, answer.body)


@pytest.mark.parametrize(
    ("error", "status", "kind", "body"),
    [
        (HTTPException(404, "not here"), 404, TEXT, b"not here"),
        (HTTPException(418), 418, TEXT, b"I'm a Teapot"),
        (fastapi.HTTPException(409, {"why": 1}), 409, JSON, b'{"detail":{"why":1}}'),
    ],
)
async def test_http_exceptions_choose_status_and_detail(
    error: Exception, status: int, kind: str, body: bytes
) -> None:
    answer = await _failure(error)
    assert (status, kind, body) == (answer.status, answer.headers["content-type"], answer.body)


async def test_an_http_exception_brings_its_headers() -> None:
    answer = await _failure(HTTPException(401, headers={"WWW-Authenticate": "Bearer"}))
    assert "Bearer" == answer.headers["www-authenticate"]
    assert b"" == (await _failure(HTTPException(304))).body


async def test_an_http_exception_has_one_content_type() -> None:
    async def handler() -> None:
        raise HTTPException(400, "{}", headers={"Content-Type": "application/problem+json"})

    async with serving(handler) as client:
        call = client.begin()
        await answer_of(call)
    (_, _, headers, _), *_ = call.commands
    assert [(b"content-type", b"application/problem+json")] == list(headers)


async def test_a_child_call_that_was_too_late_says_so() -> None:
    answer = await _failure(RequestTimeout("the deadline passed"))
    assert (408, b"A deployment behind this one has not answered in time.\n") == (
        answer.status,
        answer.body,
    )


async def test_a_method_with_a_timeout_is_stopped() -> None:
    class Slow:
        @pyserve.method(timeout_s=0.01)
        async def __call__(self) -> None:
            await asyncio.Event().wait()

    async with serving(Slow()) as client:
        answer = await client()
    assert (DEADLINE_EXCEEDED, b"took longer than 0.01 s") == (answer.code, answer.body)


async def test_an_exception_after_the_client_left_is_not_answered() -> None:
    began = asyncio.Event()

    async def handler() -> None:
        try:
            began.set()
            await asyncio.Event().wait()
        finally:
            raise ValueError("in the cleanup")

    async with serving(handler) as client:
        call = client.begin()
        await began.wait()
        await client.leave(call)
        await eventually(lambda: call.commands)
    assert 0 == written(call).status
    assert [("release",)] == call.commands
