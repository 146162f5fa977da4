"""An engine's own server, which a replica starts, watches, and takes with it."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest

import pyserve
from pyserve.llm import OpenAIUrl
from pyserve.llm.v1 import engine_pb2 as pb
from pyserve.llm.v1 import engine_pb2_grpc
from tests.support.waiting import eventually

pytestmark = [pytest.mark.slow, pytest.mark.parity("G-86")]

TIMEOUT_S = 30
SERVER = Path(__file__).parents[2] / "support" / "openai_server.py"


@pytest.fixture
def pid_file(tmp_path: Path) -> Path:
    return tmp_path / "pid"


@pytest.fixture
def address(pid_file: Path) -> Iterator[str]:
    pyserve.start(address="127.0.0.1:0")
    try:
        options: dict[str, Any] = {"health_check_period_s": 0.2, "graceful_shutdown_timeout_s": 5}
        engine = pyserve.deployment(OpenAIUrl).options(name="own", **options)
        command = [sys.executable, str(SERVER), "{port}", str(pid_file)]
        pyserve.run(engine.bind(command=command, models=["there"]), route_prefix=None)
        yield pyserve.status().addresses[0]
    finally:
        pyserve.shutdown()


@pytest.fixture
async def stub(address: str) -> AsyncIterator[Any]:
    async with grpc.aio.insecure_channel(address) as channel:
        yield engine_pb2_grpc.EngineStub(channel)


async def _text(stub: Any) -> str:
    said = pb.ChatMessage(role="user", content=[pb.ContentPart(text="words 2")])
    request = pb.GenerateRequest(chat=pb.Chat(messages=[said]), stream=True)
    call = stub.Generate(request, timeout=TIMEOUT_S, wait_for_ready=True)
    return "".join([each.text async for each in call])


def _pid(pid_file: Path) -> int:
    return int(pid_file.read_text())


async def test_a_replica_whose_server_was_killed_is_replaced(stub: Any, pid_file: Path):
    assert "w0 w1 " == await _text(stub)
    first = _pid(pid_file)
    os.kill(first, signal.SIGKILL)
    codes: set[grpc.StatusCode] = set()

    async def answers_again() -> bool:
        try:
            return _pid(pid_file) != first and await _text(stub) == "w0 w1 "
        except grpc.aio.AioRpcError as error:
            codes.add(error.code())
            return False

    await eventually(answers_again)
    # While nobody had noticed, or none was there.
    assert codes <= {grpc.StatusCode.UNAVAILABLE}
