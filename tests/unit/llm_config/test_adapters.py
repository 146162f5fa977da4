"""Adapters from a folder: loaded when a request names one, unloaded when others need room."""

import pytest

from pyserve import llm
from pyserve.llm.deployment import LLMServer
from pyserve.llm.openai_api_models import ChatCompletionRequest
from pyserve.testing import request

pytestmark = pytest.mark.parity("G-86")


class WithAdapters(llm.Engine):
    """Notes what it loads."""

    def __init__(self) -> None:
        self.notes: list[str] = []

    async def generate(self, request):
        yield f"{request.model}+{request.adapter}"

    async def load_adapter(self, name: str, path: str) -> None:
        self.notes.append(f"load {name} {path}")

    async def unload_adapter(self, name: str) -> None:
        self.notes.append(f"unload {name}")


@pytest.fixture
async def server(tmp_path):
    for name in ("legal", "poems"):
        (tmp_path / name).mkdir()
    server = LLMServer.sync_init(
        llm.LLMConfig(
            model_loading_config={"model_id": "m"},
            llm_engine=WithAdapters,
            lora_config={
                "dynamic_lora_loading_path": f"{tmp_path}/",
                "max_num_adapters_per_replica": 1,
            },
        )
    )
    await server.start()
    yield server
    await server.aclose()


async def ask(server: LLMServer, model: str):
    with request():
        (found,) = [
            item
            async for item in await server.chat(
                ChatCompletionRequest(model=model, messages=[{"role": "user", "content": ""}])
            )
        ]
    return found


async def test_an_adapter_is_loaded_once_and_makes_room_for_the_next(server, tmp_path):
    answers = [await ask(server, f"m:{name}") for name in ("legal", "legal", "poems")]

    assert ["m+legal", "m+legal", "m+poems"] == [
        each.choices[0].message.content for each in answers
    ]
    assert [
        f"load legal {tmp_path}/legal",
        "unload legal",
        f"load poems {tmp_path}/poems",
    ] == server.engine.notes


async def test_the_model_lists_them(server):
    (model,) = await server.models()

    assert (True, ("legal", "poems")) == (model.takes_adapters, model.adapters)


@pytest.mark.parametrize("name", ["none", "..", ".hidden", "a/b", "a\\b", "../m"])
async def test_a_name_that_is_no_folder_in_it_is_not_found(server, name: str):
    found = await ask(server, f"m:{name}")

    assert 404 == found.error.code
    assert [] == server.engine.notes
