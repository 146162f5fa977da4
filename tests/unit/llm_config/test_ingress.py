"""The routes of ``OpenAiIngress``: models, errors, and streams whose clients leave."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from starlette.requests import Request
from starlette.responses import JSONResponse

from pyserve.errors import UsageError
from pyserve.llm.ingress import OpenAiIngress
from pyserve.llm.openai.failures import OpenAIHTTPException
from pyserve.llm.openai_api_models import (
    ChatCompletionRequest,
    ChatCompletionResponse,
    ErrorInfo,
    ErrorResponse,
    ModelCard,
    TokenizeResponse,
)

pytestmark = pytest.mark.parity("G-86")


class Stream:
    """What a handle returns: yields what it is told, and knows when it was cancelled."""

    def __init__(self, items: list[Any]) -> None:
        self._items = items
        self.is_cancelled = False

    def __aiter__(self) -> Stream:
        return self

    async def __anext__(self) -> Any:
        if self._items:
            return self._items.pop(0)
        raise StopAsyncIteration

    def cancel(self) -> None:
        self.is_cancelled = True


class Handle:
    """Stands for that of an engine; every method of it is called in the same way."""

    def __init__(self, *items: Any) -> None:
        self.stream = Stream(list(items))
        self.asked: dict[str, Any] = {}

    def options(self, **options: Any) -> Handle:
        self.asked |= options
        return self

    def __getattr__(self, _name: str) -> Handle:
        return self

    def remote(self, _body: Any) -> Stream:
        return self.stream


def ingress(*handles: Handle, **fields: Any) -> OpenAiIngress:
    names = "ab"[: len(handles)]
    deployments: dict[str, Any] = dict(zip(names, handles, strict=True))
    return OpenAiIngress(deployments, {name: ModelCard(id=name) for name in names}, **fields)


def chat(model: str | None = None, **fields: Any) -> ChatCompletionRequest:
    return ChatCompletionRequest(model=model, messages=[{"role": "user"}], **fields)


def request(**headers: str) -> Request:
    raw = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    return Request({"type": "http", "headers": raw})


async def test_a_client_that_leaves_while_it_is_sent_to_ends_the_call():
    handle = Handle(["data: 1"], ["data: 2"], ["data: 3"])
    response = await ingress(handle).chat(chat(stream=True), request())
    is_sending = asyncio.Event()

    async def receive() -> dict[str, Any]:
        await is_sending.wait()
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        if message["type"] == "http.response.body":
            is_sending.set()
            await asyncio.Event().wait()  # The client reads no more.

    await response({"type": "http", "asgi": {}}, receive, send)

    assert handle.stream.is_cancelled


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        ("a", {"stream": True}),
        ("a:legal", {"stream": True, "multiplexed_model_id": "a:legal"}),
        (None, {"stream": True}),
    ],
)
async def test_the_call_names_the_adapter(model: str | None, expected: dict[str, Any]):
    handle = Handle(TokenizeResponse(count=0, max_model_len=1, tokens=[]))

    response = await ingress(handle).chat(chat(model), request())

    assert isinstance(response, JSONResponse)
    assert expected == handle.asked


async def test_the_session_of_the_client_is_the_sessions_of_the_call():
    handle = Handle(TokenizeResponse(count=0, max_model_len=1, tokens=[]))

    await ingress(handle).chat(chat(), request(x_session_id="s1"))

    assert "s1" == handle.asked["session_id"]


@pytest.mark.parametrize(("model", "status"), [(None, 400), ("c", 404), ("c:a", 404)])
async def test_a_model_that_there_is_not_is_refused(model: str | None, status: int):
    with pytest.raises(OpenAIHTTPException) as caught:
        await ingress(Handle(), Handle()).chat(chat(model), request())

    assert (status, "model") == (caught.value.status_code, caught.value.param)


async def test_a_message_has_what_openai_gives_it():
    function = {"name": "f", "arguments": "{}"}
    call = {"id": "call-1", "type": "function", "function": function}
    message = {"role": "assistant", "content": None, "tool_calls": [call]}
    given = {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1,
        "model": "a",
        "choices": [
            {"index": 0, "message": message, "logprobs": None, "finish_reason": "tool_calls"}
        ],
        "usage": {"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3},
    }

    response = await ingress(Handle(ChatCompletionResponse.model_validate(given))).chat(
        chat(), request()
    )

    assert given == json.loads(bytes(response.body))


async def test_what_an_engine_refuses_has_its_status():
    info = ErrorInfo(message="full", type="rate_limit_error", code=429)

    with pytest.raises(OpenAIHTTPException, match="full") as caught:
        await ingress(Handle(ErrorResponse(error=info))).chat(chat(), request())

    assert 429 == caught.value.response().status_code


async def test_models_and_their_adapters_are_listed(tmp_path):
    (tmp_path / "legal").mkdir()
    found = ingress(Handle(), Handle(), lora_paths={"b": str(tmp_path)})

    assert ["a", "b", "b:legal"] == [each.id for each in (await found.models()).data]
    assert "b:legal" == (await found.model_data("b:legal")).id
    for name in ("a:legal", "b:poems"):
        with pytest.raises(OpenAIHTTPException, match="does not exist"):
            await found.model_data(name)


def test_cards_and_handles_are_of_the_same_models():
    with pytest.raises(UsageError, match=r"\['a'\], and model_cards has \['b'\]"):
        OpenAiIngress({"a": Handle()}, {"b": ModelCard(id="b")})  # type: ignore[dict-item]
