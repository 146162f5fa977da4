"""A chatbot that streams over HTTP and WebSockets; its model runs in threads of its loop."""

import asyncio
import logging
from collections.abc import AsyncIterator
from queue import Empty, Queue

from fastapi import FastAPI, WebSocket, WebSocketDisconnect
from starlette.responses import StreamingResponse

import pyserve as serve

logger = logging.getLogger("ray.serve")
fastapi_app = FastAPI()
END = "<<Response Finished>>"


class Streamer:
    """What the libraries of language models offer: filled in a thread, read elsewhere."""

    def __init__(self) -> None:
        self._tokens: Queue[str | None] = Queue()

    def put(self, token: str | None) -> None:
        self._tokens.put(token)

    def __iter__(self) -> "Streamer":
        return self

    def __next__(self) -> str:
        if (token := self._tokens.get_nowait()) is None:
            raise StopIteration
        return token


@serve.deployment
@serve.ingress(fastapi_app)
class Textbot:
    def __init__(self, model_id: str) -> None:
        self.loop = asyncio.get_running_loop()
        self.model_id = model_id

    @fastapi_app.post("/")
    def handle_request(self, prompt: str) -> StreamingResponse:
        logger.info('Got prompt: "%s"', prompt)
        streamer = Streamer()
        self.loop.run_in_executor(None, self.generate_text, prompt, streamer)
        return StreamingResponse(self.consume_streamer(streamer), media_type="text/plain")

    @fastapi_app.websocket("/chat")
    async def chat(self, ws: WebSocket) -> None:
        await ws.accept()
        conversation = ""
        try:
            while True:
                conversation += await ws.receive_text() + " "
                streamer = Streamer()
                self.loop.run_in_executor(None, self.generate_text, conversation, streamer)
                async for token in self.consume_streamer(streamer):
                    await ws.send_text(token)
                    conversation += token
                await ws.send_text(END)
        except WebSocketDisconnect:
            logger.info("Client disconnected.")

    def generate_text(self, prompt: str, streamer: Streamer) -> None:
        for word in reversed(prompt.split()):
            streamer.put(f"{word} ")
        streamer.put(None)

    async def consume_streamer(self, streamer: Streamer) -> AsyncIterator[str]:
        while True:
            try:
                for token in streamer:
                    yield token
                break
            except Empty:
                await asyncio.sleep(0.01)


app = Textbot.bind("fake/DialoGPT")
