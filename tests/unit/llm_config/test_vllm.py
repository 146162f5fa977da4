"""``llm_engine="vLLM"`` with a stand-in for its program: a child of the replica, and adapters."""

import asyncio
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from pyserve import llm
from pyserve.errors import UsageError
from pyserve.llm.deployment import LLMServer
from pyserve.llm.engines import own_servers
from pyserve.llm.openai_api_models import ChatCompletionRequest
from pyserve.testing import request

pytestmark = [pytest.mark.slow, pytest.mark.parity("G-86")]
_STAND_IN = Path(__file__).with_name("stand_in.py")


@pytest.fixture
def notes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    program = tmp_path / "vllm-program"
    program.write_text(f"#!{sys.executable}\n{_STAND_IN.read_text()}")
    program.chmod(0o700)
    monkeypatch.setattr(own_servers, "program_of", lambda _name, _install: str(program))
    package = tmp_path / "packages/vllm"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    monkeypatch.syspath_prepend(package.parent)
    found = tmp_path / "notes"
    monkeypatch.setenv("NOTES", str(found))
    return found


@pytest.fixture
async def server(notes: Path, tmp_path: Path) -> AsyncIterator[LLMServer]:
    for name in ("legal", "broken"):
        (tmp_path / "adapters" / name).mkdir(parents=True)
    server = LLMServer.sync_init(
        llm.LLMConfig(
            model_loading_config={"model_id": "qwen", "model_source": "Qwen/Qwen3-8B"},
            lora_config={"dynamic_lora_loading_path": str(tmp_path / "adapters")},
        )
    )
    await server.start()
    yield server
    await server.aclose()


def lines(notes: Path) -> list[str]:
    return notes.read_text().splitlines()


async def content(server: LLMServer, model: str) -> str:
    asked = ChatCompletionRequest(model=model, messages=[{"role": "user", "content": "Hello"}])
    with request():
        (found,) = [item async for item in await server.chat(asked)]
    return str(found.choices[0].message.content)


async def test_its_server_is_a_child_that_answers(server: LLMServer, notes: Path):
    (model,) = await server.models()

    assert ("qwen", 4096, "Qwen/Qwen3-8B") == (model.id, model.max_model_len, model.root)
    assert "qwen" == await content(server, "qwen")
    assert ["2 serve Qwen/Qwen3-8B"] == lines(notes)


async def test_adapters_are_loaded_by_its_endpoints(server: LLMServer, notes: Path, tmp_path: Path):
    assert "legal" == await content(server, "qwen:legal")
    await server.aclose()

    path = str(tmp_path / "adapters/legal")
    assert [
        f'POST /v1/load_lora_adapter {{"lora_name": "legal", "lora_path": "{path}"}}',
        'POST /v1/unload_lora_adapter {"lora_name": "legal"}',
    ] == lines(notes)[1:]


async def test_an_adapter_that_it_refuses_fails_the_request(server: LLMServer):
    with pytest.raises(UsageError, match="load_lora_adapter with 400: no such adapter"):
        await content(server, "qwen:broken")


async def test_it_forgets_prompts_and_sleeps(server: LLMServer, notes: Path):
    await server.reset_prefix_cache()
    await server.sleep(level=2)
    await server.wakeup()

    assert [
        "POST /reset_prefix_cache {}",
        "POST /sleep?level=2 {}",
        "POST /wake_up {}",
    ] == lines(notes)[1:]


def test_nothing_of_it_is_left(notes: Path):
    async def run() -> int:
        server = LLMServer.sync_init(llm.LLMConfig(model_loading_config={"model_id": "qwen"}))
        await server.start()
        child = server.engine._child
        assert child is not None
        await server.aclose()
        return int(child.port)

    port = asyncio.run(run())

    with pytest.raises(ConnectionRefusedError):
        asyncio.run(asyncio.open_connection("127.0.0.1", port))
