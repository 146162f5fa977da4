"""A server that speaks OpenAI's API, for the tests of engines behind a URL; a program too.

It answers what the last message says: ``words N`` N words, ``status N`` an error of that status,
``cut`` an answer that breaks off, ``garbage`` no JSON, ``wait`` nothing, after a first word.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from typing import Any

import h11

MODELS = {"data": [{"id": "there", "max_model_len": 512}]}


class OpenAIServer:
    """Listens at a port of the loopback until it is closed.

    Attributes:
        requests: Target, headers and body of each request.
        open: Answers that are being written.
        connections: Those that were accepted.
        ended: Those of them that have ended.
    """

    def __init__(self) -> None:
        self.requests: list[tuple[str, dict[str, str], Any]] = []
        self.open = self.connections = self.ended = 0

    async def start(self, port: int = 0) -> int:
        """Listen; return the port."""
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", port)
        found: int = self._server.sockets[0].getsockname()[1]
        return found

    async def close(self) -> None:
        """Listen no more."""
        self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        connection = h11.Connection(h11.SERVER)
        try:
            while (request := await _next(connection, reader)) is not None:
                await self._answer(connection, writer, reader, *request)
                connection.start_next_cycle()
        except (ConnectionError, h11.ProtocolError):
            pass
        finally:
            self.ended += 1
            writer.close()

    async def _answer(
        self,
        connection: h11.Connection,
        writer: asyncio.StreamWriter,
        reader: asyncio.StreamReader,
        head: h11.Request,
        raw: bytes,
    ) -> None:
        target = head.target.decode()
        body: Any = json.loads(raw) if raw else None
        headers = {name.decode(): value.decode() for name, value in head.headers}
        self.requests.append((target, headers, body))

        def send(*events: h11.Event) -> None:
            for event in events:
                writer.write(connection.send(event) or b"")

        def whole(status: int, found: Any) -> None:
            raw = json.dumps(found).encode()
            lines = [("content-length", str(len(raw))), ("content-type", "application/json")]
            send(
                h11.Response(status_code=status, headers=lines),
                h11.Data(data=raw),
                h11.EndOfMessage(),
            )

        if target in {"/v1/models", "/health"}:
            whole(200, MODELS)
        elif target == "/v1/embeddings":
            inputs = body["input"]
            data = [{"index": n, "embedding": [float(len(x))]} for n, x in enumerate(inputs)]
            whole(200, {"data": data[::-1], "usage": {"prompt_tokens": 3}})
        else:
            await self._stream(send, whole, writer, reader, body)

    async def _stream(self, send: Any, whole: Any, writer: Any, reader: Any, body: Any) -> None:
        is_chat = "messages" in body
        text = body["messages"][-1]["content"] if is_chat else body["prompt"]
        what, _, value = text.partition(" ")
        if what == "status":
            whole(int(value), {"error": {"message": f"this is {value}", "param": "messages"}})
            return
        self.open += 1
        try:
            send(h11.Response(status_code=200, headers=[("content-type", "text/event-stream")]))
            for number in range(int(value) if what == "words" else 1):
                for index in range(body.get("n", 1)):
                    send(_event(_chunk(f"w{number} ", index, is_chat=is_chat)))
            await writer.drain()
            if what == "wait":
                while await reader.read(100):
                    pass
                raise ConnectionError("the client has gone")
            if what == "cut":
                raise ConnectionError("as told")
            if what == "garbage":
                send(h11.Data(data=b"data: {nonsense\n\n"))
            if what == "error":
                send(_event({"error": {"message": "the engine has failed", "code": 500}}))
            usage = {"prompt_tokens": 7, "completion_tokens": 5}
            send(_event({"choices": [], "usage": usage}), h11.Data(data=b"data: [DONE]\n\n"))
            send(h11.EndOfMessage())
        finally:
            self.open -= 1


def _event(chunk: Any) -> h11.Data:
    return h11.Data(data=f"data: {json.dumps(chunk)}\n\n".encode())


def _chunk(text: str, index: int, *, is_chat: bool) -> Any:
    said = {"delta": {"content": text}} if is_chat else {"text": text}
    return {"choices": [{"index": index, **said}]}


async def _next(
    connection: h11.Connection, reader: asyncio.StreamReader
) -> tuple[h11.Request, bytes] | None:
    head, body = None, b""
    while True:
        event = connection.next_event()
        if event is h11.NEED_DATA:
            connection.receive_data(await reader.read(65536))
        elif isinstance(event, h11.Request):
            head = event
        elif isinstance(event, h11.Data):
            body += event.data
        elif isinstance(event, h11.EndOfMessage):
            assert head is not None
            return head, body
        else:
            return None


async def _run(port: int, pid_file: str) -> None:
    await OpenAIServer().start(port)
    with open(pid_file, "w") as file:  # noqa: ASYNC230, PTH123 (a program of its own)
        file.write(str(os.getpid()))
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(_run(int(sys.argv[1]), sys.argv[2]))
