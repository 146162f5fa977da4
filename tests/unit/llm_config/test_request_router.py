"""Routers of language models: prompts that begin alike have equal keys."""

import pytest

from pyserve import cache, llm
from pyserve.api.policy import Candidate, check_policy
from pyserve.config import RequestRouterConfig
from pyserve.errors import OptionError
from pyserve.llm.openai_api_models import ChatCompletionRequest, CompletionRequest, EmbeddingRequest
from pyserve.llm.prefixes import BLOCK_CHARACTERS
from pyserve.llm.request_router import (
    Affinity,
    KVAwareRouter,
    PrefixCacheAffinityRouter,
    affinity_of,
    prefix_keys,
)

pytestmark = pytest.mark.parity("G-86")
PROMPT = "You are an assistant that answers in one line. " * 20


def completion(prompt: str) -> list[bytes]:
    return prefix_keys(CompletionRequest(model="m", prompt=prompt))


def chat(*contents: str, model: str = "m") -> list[bytes]:
    messages = [{"role": "user", "content": each} for each in contents]
    return prefix_keys(ChatCompletionRequest(model=model, messages=messages))


def test_prompts_have_the_keys_of_what_they_begin_with():
    one, other = completion(PROMPT + "a" * 300), completion(PROMPT + "b" * 300)

    common = [a for a, b in zip(one, other, strict=True) if a == b]
    assert (len(PROMPT) + 2) // BLOCK_CHARACTERS == len(common)
    assert common == one[: len(common)]


def test_a_conversation_that_goes_on_keeps_its_keys():
    first = chat(PROMPT, "What is this?")

    assert first == chat(PROMPT, "What is this?", "And that?" * 40)[: len(first)]


def test_other_models_and_short_prompts_share_nothing():
    assert set() == {*chat(PROMPT)} & {*chat(PROMPT, model="n")}
    assert [] == chat("Hello") == prefix_keys(EmbeddingRequest(input=PROMPT))


def test_a_call_names_no_more_keys_than_it_may():
    assert 256 == len(completion("x" * 1_000_000))


def configured(cls: type, **kwargs) -> llm.LLMConfig:
    router = RequestRouterConfig(request_router_class=cls, request_router_kwargs=kwargs)
    return llm.LLMConfig(
        model_loading_config={"model_id": "m"},
        llm_engine="simulated",
        engine_kwargs={"tokens": 1},
        deployment_config={"request_router_config": router},
    )


@pytest.mark.parametrize("cls", [PrefixCacheAffinityRouter, KVAwareRouter])
def test_a_configuration_that_asks_for_one_has_replicas_that_report(cls: type):
    assert Affinity(None) == affinity_of(configured(cls))
    assert Affinity(1000) == affinity_of(
        configured(cls, do_eviction=True, eviction_target_chars=1000)
    )
    with pytest.raises(OptionError, match="eviction_target_chars=0"):
        affinity_of(configured(cls, eviction_target_chars=0))


def test_the_names_of_ray_serve_in_files_mean_the_same():
    router = {
        "request_router_class": "ray.serve.llm.request_router.PrefixCacheAffinityRouter",
        "request_router_kwargs": {"imbalanced_threshold": 5},
    }
    config = llm.LLMConfig(
        model_loading_config={"model_id": "m"},
        deployment_config={"request_router_config": router},
    )

    assert Affinity(None) == affinity_of(config)


async def test_without_a_configuration_it_picks_the_less_loaded_of_two():
    path = f"{PrefixCacheAffinityRouter.__module__}:{PrefixCacheAffinityRouter.__qualname__}"
    check_policy(path, {"imbalanced_threshold": 5, "match_rate_threshold": 0.5})
    router = PrefixCacheAffinityRouter()
    router.initialize_state(imbalanced_threshold=5)
    both = [Candidate("a", "n", 3, 10), Candidate("b", "n", 1, 10)]

    ranks = await router.choose_replicas(both, None)

    assert ["b", "a"] == [rank[0].replica_id for rank in ranks[:2]]


async def test_a_server_reports_the_prompts_that_it_has_had(monkeypatch: pytest.MonkeyPatch):
    from pyserve.llm.deployment import LLMServer

    stored: list[tuple[list[bytes], object]] = []
    monkeypatch.setattr(cache, "stored", lambda keys, parent=None: stored.append((keys, parent)))
    server = LLMServer.sync_init(configured(PrefixCacheAffinityRouter))
    await server.start()

    async for _ in await server.completions(CompletionRequest(model="m", prompt=PROMPT)):
        pass

    keys = completion(PROMPT)
    # What follows are the engine's own blocks.
    assert [(keys[:1], None), (keys[1:], keys[0])] == stored[:2]
