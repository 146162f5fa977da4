"""``LLMServer`` outside of a replica: its start, and its calls as handles make them."""

import asyncio
import base64
import json
import struct
from typing import Any

import pytest

from pyserve import llm
from pyserve.errors import Abort, UsageError
from pyserve.llm.callbacks import CallbackBase
from pyserve.llm.deployment import LLMServer
from pyserve.llm.errors import InvalidRequest
from pyserve.llm.openai_api_models import (
    ChatCompletionRequest,
    ChatCompletionResponse,
    CompletionRequest,
    DetokenizeRequest,
    EmbeddingRequest,
    ErrorResponse,
    ScoreRequest,
    TokenizeCompletionRequest,
)
from pyserve.llm.v1 import engine_pb2
from tests.support.waiting import eventually

pytestmark = pytest.mark.parity("G-86")
FAST = {"step_s": 0.0, "step_s_per_request": 0.0, "prefill_tokens_per_s": 1e9}
NO_CONTEXT: Any = None
HELLO: list[dict[str, Any]] = [{"role": "user", "content": "Hello"}]


def config(**fields) -> llm.LLMConfig:
    return llm.LLMConfig(
        **{
            "model_loading_config": {"model_id": "m", "model_source": "somewhere/m"},
            "llm_engine": "simulated",
            "engine_kwargs": {"rates": FAST, "tokens": 5},
        }
        | fields
    )


async def started(**fields) -> LLMServer:
    server = LLMServer.sync_init(config(**fields))
    await server.start()
    return server


@pytest.fixture
async def server():
    server = await started()
    yield server
    await server.aclose()


async def items(answer) -> list[Any]:
    return [item async for item in await answer]


async def running(server: LLMServer) -> int:
    return (await server.load()).running_requests


def events(found: list[Any]) -> list[dict[str, Any]]:
    texts = [each for item in found for each in item]
    assert all(each.startswith("data: ") and each.endswith("\n\n") for each in texts)
    assert "data: [DONE]\n\n" == texts.pop()
    return [json.loads(each.removeprefix("data: ")) for each in texts]


async def test_a_chat_is_one_response(server: LLMServer):
    (found,) = await items(server.chat(ChatCompletionRequest(model="m", messages=HELLO)))

    assert isinstance(found, ChatCompletionResponse)
    (choice,) = found.choices
    assert ("assistant", "stop") == (choice.message.role, choice.finish_reason)
    assert choice.message.content
    assert found.usage.total_tokens == found.usage.prompt_tokens + 5
    assert ("chat.completion", "m") == (found.object, found.model)


async def test_a_stream_has_the_same_text(server: LLMServer):
    asked: dict[str, Any] = {"messages": HELLO, "temperature": 0, "n": 2}
    (whole,) = await items(server.chat(ChatCompletionRequest(**asked)))

    found = events(
        await items(
            server.chat(
                ChatCompletionRequest(**asked, stream=True, stream_options={"include_usage": True})
            )
        )
    )

    last = found.pop()
    assert ([], whole.usage.total_tokens) == (last["choices"], last["usage"]["total_tokens"])
    assert 1 == len({(each["id"], each["created"], each["model"]) for each in [*found, last]})
    for index in (0, 1):
        pieces = [c for each in found for c in each["choices"] if c["index"] == index]
        roles = [piece["delta"].get("role") for piece in pieces]
        assert ["assistant"] + [None] * (len(pieces) - 1) == roles
        assert [None] * (len(pieces) - 1) + ["stop"] == [each["finish_reason"] for each in pieces]
        text = "".join(piece["delta"].get("content", "") for piece in pieces)
        assert whole.choices[index].message.content == text


async def test_completions_of_several_prompts(server: LLMServer):
    asked: dict[str, Any] = {"prompt": ["one", "two"], "n": 2, "temperature": 0, "max_tokens": 3}

    (whole,) = await items(server.completions(CompletionRequest(**asked)))
    streamed = events(await items(server.completions(CompletionRequest(**asked, stream=True))))

    assert [0, 1, 2, 3] == [each.index for each in whole.choices]
    assert {"length"} == {each.finish_reason for each in whole.choices}
    for choice in whole.choices:
        pieces = [c for each in streamed for c in each["choices"] if c["index"] == choice.index]
        assert choice.text == "".join(each["text"] for each in pieces)


async def test_a_stop_sequence_ends_a_choice(server: LLMServer):
    asked: dict[str, Any] = {"messages": HELLO, "simulated": {"text": "Look at that. It is over."}}

    (whole,) = await items(server.chat(ChatCompletionRequest(**asked, stop="t is")))
    streamed = events(
        await items(server.chat(ChatCompletionRequest(**asked, stop=["t is"], stream=True)))
    )

    message = whole.choices[0].message
    assert ("Look at that. I", "stop") == (message.content, whole.choices[0].finish_reason)
    text = "".join(each["choices"][0]["delta"].get("content", "") for each in streamed)
    assert message.content == text


async def test_tools_are_called(server: LLMServer):
    tool = {
        "type": "function",
        "function": {
            "name": "weather",
            "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
        },
    }
    asked: dict[str, Any] = {"messages": HELLO, "tools": [tool], "tool_choice": "required"}

    (whole,) = await items(server.chat(ChatCompletionRequest(**asked)))
    streamed = events(await items(server.chat(ChatCompletionRequest(**asked, stream=True))))

    (choice,) = whole.choices
    assert ("tool_calls", None) == (choice.finish_reason, choice.message.content)
    (call,) = choice.message.tool_calls
    assert "weather" == call.function.name
    pieces = [
        piece for each in streamed for piece in each["choices"][0]["delta"].get("tool_calls", [])
    ]
    assert 1 == sum("id" in piece for piece in pieces)
    arguments = "".join(piece["function"]["arguments"] for piece in pieces)
    assert json.loads(call.function.arguments) == json.loads(arguments)


@pytest.mark.parametrize("stream", [True, False])
async def test_a_caller_that_leaves_stops_the_engine(stream: bool):
    server = await started(engine_kwargs={"rates": {"step_s": 0.001}, "tokens": 10_000})
    answer = await server.chat(ChatCompletionRequest(messages=HELLO, stream=stream))

    first = asyncio.ensure_future(anext(answer))
    await eventually(lambda: running(server))
    if stream:
        await first
    else:
        first.cancel()
        await asyncio.wait([first])
    await answer.aclose()

    assert 0 == await running(server)
    await server.aclose()


async def test_a_mapping_that_does_not_fit_is_refused(server: LLMServer):
    with pytest.raises(InvalidRequest, match="messages: Field required"):
        await server.chat({"model": "m"})  # type: ignore[arg-type]


async def test_embeddings_are_numbers_or_base64(server: LLMServer):
    (plain,) = await items(server.embeddings(EmbeddingRequest(input=["a", "b"], dimensions=4)))
    (packed,) = await items(
        server.embeddings(EmbeddingRequest(input="a", dimensions=4, encoding_format="base64"))
    )

    assert [0, 1] == [each["index"] for each in plain.data]
    raw = base64.b64decode(packed.data[0]["embedding"])
    assert plain.data[0]["embedding"] == pytest.approx(struct.unpack("<4f", raw))


async def test_the_other_calls(server: LLMServer):
    (scores,) = await items(server.score(ScoreRequest(text_1="pear", text_2=["pear", "stone"])))
    (tokens,) = await items(server.tokenize(TokenizeCompletionRequest(prompt="some words")))
    (text,) = await items(server.detokenize(DetokenizeRequest(tokens=tokens.tokens)))

    assert scores.data[0]["score"] > scores.data[1]["score"]
    assert tokens.count == len(tokens.tokens) > 0
    assert text.prompt


async def test_what_is_refused_is_an_answer(server: LLMServer):
    unknown = ChatCompletionRequest(model="other", messages=HELLO)
    wrong = ChatCompletionRequest(messages=[{"content": "nobody's"}])

    for stream in (False, True):
        unknown.stream = wrong.stream = stream
        (found,) = await items(server.chat(unknown))
        assert isinstance(found, ErrorResponse)
        assert (404, "invalid_request_error") == (found.error.code, found.error.type)
        (found,) = await items(server.chat(wrong))
        assert (400, "messages[0].role") == (found.error.code, found.error.param)


async def test_the_service_answers_by_the_engine(server: LLMServer):
    request = engine_pb2.GenerateRequest(model="m")
    request.prompts.prompts.add(text="Hello")

    deltas = [each async for each in server.Generate(request, NO_CONTEXT)]
    tokens = await server.Tokenize(engine_pb2.TokenizeRequest(text="Hello"), NO_CONTEXT)
    scores = await server.Score(
        engine_pb2.ScoreRequest(queries=["a"], documents=["a", "b"]), NO_CONTEXT
    )

    assert engine_pb2.FINISH_REASON_STOP == deltas[-1].finish_reason
    assert len(tokens.token_ids) > 0
    assert 2 == len(scores.scores)


async def test_it_says_its_model(server: LLMServer):
    (model,) = await server.models()

    assert ("m", "somewhere/m", False) == (model.id, model.root, model.takes_adapters)
    assert {"generate", "chat", "embed", "score", "tokenize"} == set(model.tasks)
    assert config() == await server.llm_config()


async def test_a_hidden_engine_leaves_http_to_others():
    server = LLMServer.sync_init(config().hidden())
    await server.start()

    assert [] == await server.models()
    (found,) = await items(server.chat(ChatCompletionRequest(model="m", messages=HELLO)))
    assert isinstance(found, ChatCompletionResponse)


async def test_what_an_engine_cannot_do_is_refused_by_its_name(server: LLMServer):
    with pytest.raises(Abort, match="SimulatedEngine has no method 'sleep'"):
        await server.sleep(level=1)
    with pytest.raises(Abort, match="SimulatedEngine has no method 'collective_rpc'"):
        await server.collective_rpc("update_weights")
    assert (False, False) == (await server.is_sleeping(), await server.is_paused())


class Sleeping(llm.Engine):
    """Can sleep, and takes the configuration."""

    def __init__(self, llm_config: llm.LLMConfig) -> None:
        self.config = llm_config
        self.is_asleep = False

    async def generate(self, request):
        yield self.config.model_id

    async def sleep(self, level: int) -> None:
        self.is_asleep = level == 1

    async def is_sleeping(self) -> bool:
        return self.is_asleep

    async def check_health(self) -> None:
        if self.is_asleep:
            raise RuntimeError("asleep")


async def test_an_engine_of_ones_own():
    server = LLMServer.sync_init(config(llm_engine=f"{__name__}:Sleeping", engine_kwargs={}))
    await server.start()

    await server.check_health()
    await server.sleep(level=1)

    assert await server.is_sleeping()
    with pytest.raises(RuntimeError, match="asleep"):
        await server.check_health()
    (found,) = await items(server.chat(ChatCompletionRequest(messages=HELLO)))
    assert "m" == found.choices[0].message.content


async def test_a_class_in_the_place_of_the_engine():
    server = LLMServer.sync_init(config(), engine_cls=Sleeping)
    await server.start()

    assert isinstance(server.engine, Sleeping)


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"llm_engine": "vLLM"}, r"needs the package 'vllm'.*pip install vllm"),
        ({"llm_engine": "SGLang"}, r"needs the package 'sglang'.*pip install 'sglang"),
        ({"llm_engine": "transformers"}, r"needs the package 'transformers'.*pip install"),
        ({"engine_kwargs": {"token": 5}}, r"engine_kwargs=\{'token': 5\}: .*'token'"),
        ({"llm_engine": "no.such:Engine"}, "llm_engine: there is no module 'no"),
        ({"llm_engine": "json:JSONDecoder"}, "is no pyserve.llm.Engine"),
        (
            {"lora_config": {"dynamic_lora_loading_path": "/adapters"}},
            "SimulatedEngine has no method 'load_adapter'",
        ),
    ],
)
async def test_an_engine_that_cannot_be_made_is_told_at_the_start(fields, text: str):
    server = LLMServer.sync_init(config(**{"engine_kwargs": {}} | fields))

    with pytest.raises(UsageError, match=text):
        await server.start()


def test_a_downloader_of_ones_own_is_refused():
    with pytest.raises(UsageError, match="model_downloader is not supported"):
        LLMServer.sync_init(config(), model_downloader=object)


class Noting(CallbackBase):
    """Notes its hooks in the configuration's own mapping."""

    async def on_before_node_init(self) -> None:
        self.kwargs["notes"].append("before")

    def on_before_download_model_files_distributed(self) -> None:
        self.kwargs["notes"].append("fetch")

    async def on_after_node_init(self) -> None:
        self.kwargs["notes"].append("after")
        if self.kwargs.get("fails"):
            raise RuntimeError("no licence")


async def test_a_callback_is_called_around_the_start():
    notes: list[str] = []
    await started(callback_config={"callback_class": Noting, "callback_kwargs": {"notes": notes}})

    assert ["before", "fetch", "after"] == notes


@pytest.mark.parametrize("raises", [True, False])
async def test_a_callback_that_raises_fails_the_start_unless_it_need_not(raises: bool, caplog):
    given = {
        "callback_class": f"{__name__}:Noting",
        "callback_kwargs": {"notes": [], "fails": True},
        "raise_error_on_callback": raises,
    }
    if raises:
        with pytest.raises(UsageError, match="on_after_node_init of Noting raised RuntimeError"):
            await started(callback_config=given)
    else:
        await started(callback_config=given)
        assert "no licence" in caplog.text
