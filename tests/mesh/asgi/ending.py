"""A WebSocket that is left alone, beside a request that lasts until a file is there."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from pathlib import Path

from fastapi import FastAPI, WebSocket, WebSocketDisconnect
from fastapi.responses import StreamingResponse

import pyserve
from tests.support.waiting import eventually

_FOLDER = Path(os.environ["ENDING_FOLDER"])

api = FastAPI()


@api.websocket("/idle")
async def idle(websocket: WebSocket) -> None:
    """Writes down how it was left."""
    await websocket.accept()
    try:
        await websocket.receive_text()
    except WebSocketDisconnect as left:
        (_FOLDER / "left").write_text(str(left.code))


@api.get("/long")
async def long() -> StreamingResponse:
    """Begins its answer, and ends it once the file `last` is there."""

    async def pieces() -> AsyncIterator[bytes]:
        yield b"first "
        await eventually((_FOLDER / "last").exists)
        yield b"last"

    return StreamingResponse(pieces())


app = pyserve.deployment(pyserve.ingress(api)()).bind()
