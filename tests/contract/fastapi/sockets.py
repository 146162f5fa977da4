"""WebSockets."""

from typing import Annotated

from fastapi import APIRouter, Depends, Query, Response, WebSocket, WebSocketDisconnect
from fastapi.exceptions import WebSocketException

router = APIRouter(prefix="/ws")

seen: list[str] = []


@router.websocket("/echo")
async def echo(websocket: WebSocket) -> None:
    await websocket.accept()
    try:
        while True:
            message = await websocket.receive()
            if message["type"] == "websocket.disconnect":
                raise WebSocketDisconnect(message["code"], message.get("reason"))
            if (text := message.get("text")) is not None:
                await websocket.send_text(text)
            else:
                await websocket.send_bytes(message["bytes"])
    except WebSocketDisconnect as left:
        seen.append(f"{left.code} {left.reason}")


@router.get("/seen")
async def what_was_seen() -> list[str]:
    return seen


@router.websocket("/greet/{name}")
async def greet(websocket: WebSocket, name: str, times: Annotated[int, Query(gt=0)] = 1) -> None:
    await websocket.accept(headers=[(b"x-greeter", b"yes")])
    for number in range(times):
        await websocket.send_json({"hello": name, "number": number})
    await websocket.close(4000, "enough")


@router.websocket("/protocols")
async def protocols(websocket: WebSocket) -> None:
    offered = websocket.scope["subprotocols"]
    await websocket.accept(subprotocol="chat.v2" if "chat.v2" in offered else None)
    await websocket.send_json(offered)
    await websocket.close()


@router.websocket("/scope")
async def scope(websocket: WebSocket) -> None:
    await websocket.accept()
    plain = ("type", "asgi", "http_version", "scheme", "root_path", "path", "extensions")
    await websocket.send_json(
        {
            **{name: websocket.scope[name] for name in plain},
            "query": websocket.scope["query_string"].decode(),
            "url": str(websocket.url),
            "greeting": websocket.state.greeting,
        }
    )
    await websocket.close()


async def key(websocket: WebSocket, key: str | None = None) -> str:
    if key is None:
        raise WebSocketException(1008, "no key")
    return key


@router.websocket("/guarded")
async def guarded(websocket: WebSocket, key: Annotated[str, Depends(key)]) -> None:
    await websocket.accept()
    await websocket.send_text(key)
    await websocket.close()


@router.websocket("/refused")
async def refused(websocket: WebSocket) -> None:
    await websocket.close(1008, "not you")


@router.websocket("/denied")
async def denied(websocket: WebSocket) -> None:
    answer = Response("sorry", 402, {"x-why": "money"}, media_type="text/plain")
    await websocket.send_denial_response(answer)


@router.websocket("/silent")
async def silent(websocket: WebSocket) -> None:
    """Neither accepts nor refuses."""


@router.websocket("/broken")
async def broken(websocket: WebSocket) -> None:
    await websocket.accept()
    await websocket.receive_text()
    raise RuntimeError("in the middle")


@router.websocket("/broken-early")
async def broken_early(websocket: WebSocket) -> None:
    raise RuntimeError("before the answer")


@router.websocket("/leaves")
async def leaves(websocket: WebSocket) -> None:
    await websocket.accept()
    await websocket.send_text("bye")
