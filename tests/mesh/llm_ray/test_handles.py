"""Programs that call their models by handles."""

from __future__ import annotations

import json

import pytest

import pyserve as serve
from pyserve.errors import DeploymentFailed
from pyserve.llm.openai_api_models import (
    ChatCompletionRequest,
    ChatCompletionResponse,
    CompletionRequest,
    EmbeddingRequest,
    ErrorResponse,
)
from pyserve.llm.request_router import prefix_keys
from tests.mesh.llm_ray import programs
from tests.mesh.llm_ray.conftest import Run

pytestmark = [pytest.mark.slow, pytest.mark.parity("G-86")]
HELLO = [{"role": "user", "content": "Hello, world!"}]


def chat(**fields) -> ChatCompletionRequest:
    return ChatCompletionRequest(**{"model": "qwen-0.5b", "messages": HELLO} | fields)


def test_a_model_is_called_by_its_handle(run: Run):
    handle, _ = run(programs.direct())
    model = handle.options(stream=True)

    (whole,) = model.chat.remote(chat(temperature=0))
    items = list(model.chat.remote(chat(temperature=0, stream=True)))

    assert isinstance(whole, ChatCompletionResponse)
    texts = [text for item in items for text in item]
    assert "data: [DONE]\n\n" == texts.pop()
    deltas = [json.loads(each[6:])["choices"][0]["delta"] for each in texts]
    content = "".join(delta.get("content", "") for delta in deltas)
    assert whole.choices[0].message.content == content
    (completion,) = model.completions.remote(CompletionRequest(prompt="Hello", max_tokens=2))
    assert 2 == completion.usage.completion_tokens
    (embedding,) = model.embeddings.remote(EmbeddingRequest(input="Hello", dimensions=3))
    assert 3 == len(embedding.data[0]["embedding"])
    (refused,) = model.chat.remote(chat(model="other"))
    assert isinstance(refused, ErrorResponse)
    assert 404 == refused.error.code


def test_a_server_of_ones_own_changes_requests(run: Run):
    handle, _ = run(programs.of_a_subclass())
    plain, _ = run(programs.direct(), "plain")

    (polite,) = handle.options(stream=True).chat.remote(chat())
    (direct,) = plain.options(stream=True).chat.remote(chat())

    assert polite.usage.prompt_tokens > direct.usage.prompt_tokens
    assert "Polite-qwen-0_5b" == handle.deployment_name


def test_what_an_engine_lacks_is_refused_by_its_name(run: Run):
    handle, _ = run(programs.direct())

    with pytest.raises(serve.Abort, match="SimulatedEngine has no method 'sleep'"):
        handle.sleep.remote().result(timeout_s=10)
    assert handle.is_sleeping.remote().result(timeout_s=10) is False
    assert programs.config() == handle.llm_config.remote().result(timeout_s=10)


def test_an_engine_that_is_not_installed_fails_the_deploy_with_the_command(run: Run):
    with pytest.raises(DeploymentFailed, match=r"pip install vllm"):
        run(programs.broken())


def test_conversations_stay_where_their_beginning_is(run: Run):
    handle, _ = run(programs.with_prefix_affinity())
    model = handle.options(stream=True, cache_keys=prefix_keys)

    def replicas(system: str) -> set[str]:
        messages = [{"role": "system", "content": f"{system} " * 80}]
        found = set()
        for turn in range(8):
            messages.append({"role": "user", "content": f"{system} {turn} " * 30})
            (answer,) = model.chat.remote(chat(messages=messages))
            found.add(answer.id)
            messages.append({"role": "assistant", "content": answer.choices[0].message.content})
        return found

    assert [1] * 4 == [len(replicas(system)) for system in ("Sing", "Count", "Rhyme", "Plan")]
