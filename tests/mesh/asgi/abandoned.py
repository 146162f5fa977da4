"""A WebSocket whose messages are taken once a request says so, and counted."""

from __future__ import annotations

import asyncio

from fastapi import FastAPI, WebSocket

import pyserve

api = FastAPI()


@pyserve.deployment
@pyserve.ingress(api)
class Counter:
    """Counts the messages that WebSockets get after their release."""

    def __init__(self) -> None:
        self._released = asyncio.Event()
        self._messages = 0

    @api.websocket("/socket")
    async def take(self, socket: WebSocket) -> None:
        await socket.accept()
        await self._released.wait()
        async for _ in socket.iter_text():
            self._messages += 1

    @api.post("/release")
    async def release(self) -> None:
        self._released.set()

    @api.get("/messages")
    async def messages(self) -> int:
        return self._messages


app = Counter.bind()
