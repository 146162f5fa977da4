"""Answers: classes of responses, streams, redirects, failures."""

import asyncio
import io
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

from fastapi import APIRouter, HTTPException, Request, Response
from fastapi.responses import (
    FileResponse,
    HTMLResponse,
    JSONResponse,
    PlainTextResponse,
    RedirectResponse,
    StreamingResponse,
)
from fastapi.sse import EventSourceResponse, ServerSentEvent

router = APIRouter()

_WORDS = Path(__file__).parent / "static" / "words.txt"


@router.get("/html", response_class=HTMLResponse)
async def html() -> str:
    return "<p>é</p>"


@router.head("/text", include_in_schema=False)
@router.get("/text", response_class=PlainTextResponse)
async def text() -> str:
    return "plain text"


@router.get("/json")
async def json() -> JSONResponse:
    return JSONResponse({"x": 1}, status_code=202, headers={"X-Mixed-Case": "yes"})


@router.get("/bytes/{size}")
async def sized(size: int) -> Response:
    return Response(b"z" * size, media_type="application/octet-stream")


@router.get("/compressible")
async def compressible() -> PlainTextResponse:
    return PlainTextResponse("again " * 2000)


@router.get("/empty/{status}")
async def empty(status: int) -> Response:
    return Response(status_code=status, headers={"etag": '"1"'})


@router.get("/redirect")
async def redirect() -> RedirectResponse:
    return RedirectResponse("/text", status_code=303)


@router.get("/duplicates")
async def duplicates(response: Response) -> str:
    response.headers.append("x-many", "one")
    response.headers.append("x-many", "two")
    response.headers.append("link", "<a>; rel=next")
    return "several"


@router.head("/file", include_in_schema=False)
@router.get("/file")
async def file() -> FileResponse:
    return FileResponse(_WORDS, filename="wörds.txt")


def lines() -> Iterator[bytes]:
    yield from io.BytesIO(b"one\ntwo\nthree\n")


async def numbers() -> AsyncIterator[str]:
    for number in range(5):
        yield f"{number}\n"
        await asyncio.sleep(0)


@router.get("/stream/lines")
def stream_lines() -> StreamingResponse:
    return StreamingResponse(lines(), media_type="text/plain")


@router.head("/stream/numbers", include_in_schema=False)
@router.get("/stream/numbers")
async def stream_numbers() -> StreamingResponse:
    return StreamingResponse(numbers(), headers={"x-kind": "numbers"})


@router.get("/stream/large")
async def stream_large() -> StreamingResponse:
    return StreamingResponse(iter([bytes([number]) * 50_000 for number in range(20)]))


@router.get("/stream/length")
async def stream_with_length() -> StreamingResponse:
    return StreamingResponse(iter([b"ab", b"cd"]), headers={"content-length": "4"})


@router.get("/stream/json")
async def stream_json() -> AsyncIterator[dict[str, int]]:
    for number in range(3):
        yield {"number": number}


@router.get("/events", response_class=EventSourceResponse)
async def events() -> AsyncIterator[ServerSentEvent]:
    for number in range(3):
        yield ServerSentEvent(data={"number": number}, event="tick", id=str(number))


@router.get("/errors/http")
async def http_error() -> None:
    raise HTTPException(404, {"reason": "no such thing"}, headers={"x-error": "yes"})


@router.get("/errors/key")
async def key_error() -> None:
    raise KeyError("lost")


@router.get("/errors/unexpected")
async def unexpected() -> None:
    raise RuntimeError("secret text")


@router.get("/errors/invalid-answer", response_model=int)
async def invalid_answer() -> Any:
    return "not a number"


@router.get("/errors/while-streaming")
async def while_streaming(request: Request) -> StreamingResponse:
    async def broken() -> AsyncIterator[bytes]:
        yield b"begun "
        raise RuntimeError("in the middle")

    return StreamingResponse(broken())
