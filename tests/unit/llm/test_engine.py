"""The base of engines, called as the server calls it."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator
from typing import Any

import pytest
from grpc import StatusCode

import pyserve
from pyserve.errors import KindError
from pyserve.llm import (
    Delta,
    Embeddings,
    Engine,
    InvalidRequest,
    Model,
    ModelNotFound,
    Tokens,
    Usage,
)
from pyserve.llm.v1 import engine_pb2 as pb

NO_CONTEXT: Any = None


class Parrot(Engine):
    """Says a prompt again, word by word."""

    def __init__(self) -> None:
        self.requests: list[Any] = []
        self.closed = 0
        self.holds = asyncio.Event()
        self.holds.set()

    async def generate(self, request) -> AsyncIterator[Delta | str]:
        self.requests.append(request)
        try:
            for word in (request.prompt or request.messages[-1]["content"]).split():
                yield word
                await self.holds.wait()
        finally:
            self.closed += 1


def _prompts(*texts, **fields):
    prompts = [pb.Prompt(text=text) for text in texts]
    return pb.GenerateRequest(prompts=pb.Prompts(prompts=prompts), **fields)


async def _generated(engine, request):
    return [each async for each in engine.Generate(request, NO_CONTEXT)]


async def test_a_prompt_is_continued():
    found = await _generated(Parrot(), _prompts("a b c"))
    assert ["a", "b", "c", ""] == [each.text for each in found]
    assert 3 == found[-1].usage.completion_tokens


async def test_several_prompts_and_choices_are_single_calls():
    engine = Parrot()
    found = await _generated(engine, _prompts("a b", "c", n=2, request_id="r"))
    texts = ["".join(each.text for each in found if each.index == index) for index in range(4)]
    assert ["ab", "ab", "c", "c"] == texts
    assert [("a b", 1), ("a b", 1), ("c", 1), ("c", 1)] == [
        (each.prompt, each.n) for each in engine.requests
    ]
    assert 6 == [each for each in found if each.HasField("usage")][-1].usage.completion_tokens


async def test_an_engine_that_takes_many_gets_them_at_once():
    class Many(Engine):
        takes_many = True

        async def generate(self, request):
            for index in range(len(request.prompts) * request.n):
                yield Delta("x", index=index)

    found = await _generated(Many(), _prompts("a", "b", n=2))
    assert [0, 1, 2, 3] == [each.index for each in found if each.text]
    assert [0, 1, 2, 3] == [each.index for each in found if each.finish_reason]


async def test_too_many_choices_are_refused():
    with pytest.raises(InvalidRequest, match="at most 1024"):
        await _generated(Parrot(), _prompts("a", "b", n=1000))


async def test_closing_the_call_closes_the_generator():
    engine = Parrot()
    stream = engine.Generate(_prompts("a b"), NO_CONTEXT)
    await anext(stream)
    await stream.aclose()
    assert 1 == engine.closed


@pytest.mark.parametrize("n", [1, 3])
async def test_a_generation_is_aborted_by_its_id(n):
    engine = Parrot()
    engine.holds.clear()
    begun = asyncio.Event()

    async def call():
        async for _ in engine.Generate(_prompts("a b", request_id="mine", n=n), NO_CONTEXT):
            begun.set()

    task = asyncio.create_task(call())
    await begun.wait()
    assert not (await engine.Abort(pb.AbortRequest(request_id="other"), NO_CONTEXT)).found
    assert (await engine.Abort(pb.AbortRequest(request_id="mine"), NO_CONTEXT)).found
    with pytest.raises(pyserve.Abort, match="mine was aborted") as caught:
        await task
    assert StatusCode.CANCELLED is caught.value.code
    assert n == engine.closed
    assert not (await engine.Abort(pb.AbortRequest(request_id="mine"), NO_CONTEXT)).found


async def test_the_cancellation_of_a_call_stays_one():
    engine = Parrot()
    engine.holds.clear()
    task = asyncio.create_task(_generated(engine, _prompts("a b", request_id="mine")))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_model_is_named_after_its_deployment():
    with pyserve.testing.replica(deployment="Parrot"):
        (model,) = await Parrot().models()
    assert Model(id="Parrot", tasks=("generate", "chat")) == model


class Two(Parrot):
    """Has two models."""

    async def models(self):
        return [
            Model(id="big", aliases=["large"], takes_adapters=True),
            Model(id="hf.co/small:Q4", adapters=["known"]),
        ]


@pytest.mark.parametrize(
    ("asked", "model", "adapter"),
    [
        ("big", "big", ""),
        ("large", "big", ""),
        ("large:any", "big", "any"),
        ("hf.co/small:Q4", "hf.co/small:Q4", ""),
        ("hf.co/small:Q4:known", "hf.co/small:Q4", "known"),
    ],
)
async def test_a_model_is_found_by_its_names(asked, model, adapter):
    engine = Two()
    await _generated(engine, _prompts("a", model=asked))
    assert (model, adapter) == (engine.requests[0].model, engine.requests[0].adapter)


@pytest.mark.parametrize("asked", ["other", "hf.co/small:Q4:other", "big:", ":big"])
async def test_an_unknown_model_is_refused_with_those_that_there_are(asked):
    with pytest.raises(ModelNotFound, match=r"there is big, large, hf\.co/small:Q4"):
        await _generated(Two(), _prompts("a", model=asked))


async def test_of_several_models_one_has_to_be_named():
    with pytest.raises(InvalidRequest, match="name one of the models big"):
        await _generated(Two(), _prompts("a"))


@pytest.mark.parametrize(
    ("method", "request_", "name"),
    [
        ("Embed", pb.EmbedRequest(), "embed"),
        ("Score", pb.ScoreRequest(), "score"),
        ("Tokenize", pb.TokenizeRequest(), "tokenize"),
        ("Detokenize", pb.DetokenizeRequest(), "detokenize"),
        ("Load", pb.LoadRequest(), "load"),
        ("Transcribe", pb.TranscribeRequest(), "transcribe"),
        ("CacheEvents", pb.CacheEventsRequest(), "cache_events"),
    ],
)
async def test_a_method_that_an_engine_lacks_is_named(method, request_, name):
    answer = getattr(Parrot(), method)(request_, NO_CONTEXT)
    first = anext(answer) if hasattr(answer, "__aiter__") else answer
    with pytest.raises(pyserve.Abort, match=f"the engine Parrot has no method '{name}'") as caught:
        await first
    assert StatusCode.UNIMPLEMENTED is caught.value.code


class Vectors(Engine):
    """Embeds by lengths."""

    async def embed(self, request):
        if request.dimensions == 9:
            return []
        vectors = [[float(len(each))] for each in request.inputs]
        return Embeddings(vectors, Usage(prompt_tokens=5)) if request.dimensions else vectors

    async def tokenize(self, request):
        ids = list(request.text.encode())
        return Tokens(ids, 8, list(request.text)) if request.return_token_strs else ids

    async def detokenize(self, token_ids):
        return bytes(token_ids).decode()


async def test_embeddings_are_lists_or_have_a_usage():
    request = pb.EmbedRequest(inputs=[pb.Prompt(text="abc"), pb.Prompt(text="d")])
    found = await Vectors().Embed(request, NO_CONTEXT)
    assert [[3.0], [1.0]] == [list(each.values) for each in found.embeddings]
    assert not found.HasField("usage")
    request.dimensions = 1
    assert 5 == (await Vectors().Embed(request, NO_CONTEXT)).usage.prompt_tokens


async def test_a_wrong_number_of_results_is_the_engines_fault():
    request = pb.EmbedRequest(inputs=[pb.Prompt(text="abc")], dimensions=9)
    with pytest.raises(KindError, match=r"Vectors\.embed returned 0 results for 1 inputs"):
        await Vectors().Embed(request, NO_CONTEXT)


async def test_tokens_are_numbers_and_texts_again():
    engine = Vectors()
    found = await engine.Tokenize(pb.TokenizeRequest(text="ab", return_token_strs=True), NO_CONTEXT)
    assert ([97, 98], 8, ["a", "b"]) == (
        list(found.token_ids),
        found.max_model_len,
        list(found.token_strs),
    )
    back = await engine.Detokenize(pb.DetokenizeRequest(token_ids=found.token_ids), NO_CONTEXT)
    assert "ab" == back.text


def test_an_engine_says_what_it_does():
    assert ("generate", "chat") == Parrot.tasks()
    assert ("embed", "tokenize") == Vectors.tasks()


def test_a_generator_that_only_returns_is_refused_where_it_is_written():
    with pytest.raises(KindError, match=r"Wrong\.generate returns, .* write it with `yield`"):

        class Wrong(Engine):
            async def generate(self, request):
                return "x"


def test_importing_the_package_loads_no_engine():
    code = (
        "import sys, pyserve.llm\n"
        "heavy = {'numpy', 'xllamacpp', 'pydantic', 'h11', 'pyserve.llm.v1.engine_pb2'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert "[]" == done.stdout.strip()
