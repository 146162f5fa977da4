"""An engine that batches by itself, and the service in front of it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing
from typing import Any

import grpc
import numpy as np
import pytest

import pyserve
from pyserve.stepping.decorator import close
from services.letters import letters_pb2
from services.letters.model import Cache, Floats, Transformer
from services.passthrough.engine import Engine, Token
from services.passthrough.service import Passthrough
from tests.services.test_letters import alone, mixed_requests, tiny
from tests.support.waiting import eventually


class Gated:
    """A model whose forward passes wait for a semaphore; it records their batch sizes."""

    def __init__(self) -> None:
        self.shared: list[int] = []
        self.gate = threading.Semaphore(0)
        self.fails = False

    def new_cache(self) -> Cache:
        return Cache(1, 4)

    def extend(self, parts: Sequence[tuple[Cache, Sequence[int]]]) -> Floats:
        self.shared.append(len(parts))
        assert self.gate.acquire(timeout=30)
        if self.fails:
            raise ValueError("broken")
        return np.zeros((len(parts), 3))


@pytest.fixture
def model() -> Gated:
    return Gated()


@pytest.fixture
async def engine(model: Gated) -> AsyncIterator[Engine]:
    engine = Engine(model)
    yield engine
    model.gate.release(100)
    await asyncio.to_thread(engine.close)


def begun(engine: Engine, count: int) -> asyncio.Task[list[Token]]:
    async def tokens() -> list[Token]:
        stream = engine.generate([0], max_tokens=count, temperature=0.0, seed=0)
        async with aclosing(stream) as found:
            return [token async for token in found]

    return asyncio.create_task(tokens())


class TestEngine:
    async def test_requests_join_and_leave_between_passes(
        self, engine: Engine, model: Gated
    ) -> None:
        first = begun(engine, 3)
        await eventually(lambda: model.shared == [1])
        second = begun(engine, 1)
        await eventually(lambda: engine.running == 2)
        model.gate.release(3)
        assert [token.shared_by for token in await first] == [1, 2, 1]
        assert [token.shared_by for token in await second] == [2]
        assert engine.running == 0

    async def test_an_aborted_request_is_in_no_later_pass(
        self, engine: Engine, model: Gated
    ) -> None:
        staying, leaving = begun(engine, 2), begun(engine, 2)
        await eventually(lambda: engine.running == 2 and model.shared)
        leaving.cancel()
        await asyncio.wait([leaving])
        model.gate.release(2)
        await staying
        assert model.shared[-1] == 1

    async def test_a_model_that_raises_fails_all_requests_and_later_ones(
        self, engine: Engine, model: Gated
    ) -> None:
        failing = [begun(engine, 2), begun(engine, 2)]
        await eventually(lambda: engine.running == 2)
        model.fails = True
        model.gate.release()
        for each in [*failing, begun(engine, 1)]:
            with pytest.raises(RuntimeError, match="the engine has ended") as caught:
                await each
            assert "the model raised ValueError('broken')" in repr(caught.value.__cause__)

    async def test_closing_fails_unfinished_requests(self, engine: Engine, model: Gated) -> None:
        waiting = begun(engine, 100)
        await eventually(lambda: model.shared)
        closing = asyncio.create_task(asyncio.to_thread(engine.close))
        await eventually(lambda: engine._is_closed)
        model.gate.release()
        await closing
        with pytest.raises(RuntimeError, match="the engine has ended"):
            await waiting

    async def test_it_generates_what_the_model_does_without_a_batch(self) -> None:
        model = tiny()
        engine = Engine(model)
        requests = [
            letters_pb2.GenerateRequest(prompt="ab", max_tokens=n, seed=n, temperature=1.0)
            for n in range(1, 9)
        ]

        async def text(each: letters_pb2.GenerateRequest) -> str:
            stream = engine.generate(
                model.encode(each.prompt), max_tokens=each.max_tokens, temperature=1.0,
                seed=each.seed,
            )  # fmt: skip
            return model.decode([token.number async for token in stream])

        found = await asyncio.gather(*map(text, requests))
        await asyncio.to_thread(engine.close)
        assert found == [alone(model, each) for each in requests]


@pytest.fixture
async def service() -> AsyncIterator[Any]:
    made = Passthrough.func_or_class()
    yield made
    await close(made)
    await made.aclose()


class TestService:
    @pytest.mark.slow
    async def test_it_answers_as_the_stepped_class(self, service: Any) -> None:
        requests = mixed_requests()

        async def pieces(each: Any) -> list[Any]:
            return [piece async for piece in service(each)]

        answers = await asyncio.gather(*map(pieces, requests))
        model = Transformer.load()
        for each, found in zip(requests, answers, strict=True):
            assert "".join(piece.text for piece in found) == alone(model, each)
        assert max(piece.shared_by for found in answers for piece in found) > 6

    async def test_a_cancelled_request_is_aborted_in_the_engine(self, service: Any) -> None:
        answer = service(letters_pb2.GenerateRequest(prompt="a", max_tokens=250))
        await anext(answer)
        assert service._engine.running == 1
        await answer.aclose()
        await eventually(lambda: service._engine.running == 0)

    async def test_an_invalid_request_fails_alone_and_says_why(self, service: Any) -> None:
        with pytest.raises(pyserve.Abort, match="the model does not know '%'") as caught:
            await service(letters_pb2.GenerateRequest(prompt="%", max_tokens=1))
        assert caught.value.code is grpc.StatusCode.INVALID_ARGUMENT
        piece = await service(letters_pb2.GenerateRequest(prompt="a", max_tokens=1))
        assert len(piece.text) == 1
