"""The commands of engines that are servers themselves, as their manuals have them."""

import sys
from pathlib import Path

import pytest

from pyserve.errors import UsageError
from pyserve.llm import LLMConfig
from pyserve.llm.engine_names import ENGINES
from pyserve.llm.engines import own_servers
from pyserve.llm.engines.own_servers import VLLM, SGLang, Transformers, flags_of

pytestmark = pytest.mark.parity("G-86")


@pytest.fixture(autouse=True)
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own_servers, "program_of", lambda name, _install: f"/bin/{name}")


def config(engine: str, **fields) -> LLMConfig:
    loading = {"model_id": "qwen", "model_source": "Qwen/Qwen3-8B"}
    return LLMConfig(**{"model_loading_config": loading, "llm_engine": engine} | fields)


def command(engine: str, **fields) -> list[str]:
    found = config(engine, **fields)
    arguments = ENGINES[engine].arguments(found, found.model_source)
    made = {"vLLM": VLLM, "SGLang": SGLang, "transformers": Transformers}[engine](**arguments)
    return list(made._command)


AT = ["--host", "127.0.0.1", "--port", "{port}"]


def test_vllm():
    kwargs = {
        "max_model_len": 8192,
        "enable_prefix_caching": False,
        "enable_auto_tool_choice": True,
        "hf_overrides": {"a": 1},
        "quantization": None,
        "allowed_origins": ["a", "b"],
    }

    assert [
        "/bin/vllm", "serve", "Qwen/Qwen3-8B", *AT, "--served-model-name", "qwen",
        "--max-model-len", "8192", "--no-enable-prefix-caching", "--enable-auto-tool-choice",
        "--hf-overrides", '{"a": 1}', "--allowed-origins", "a", "b",
    ] == command("vLLM", engine_kwargs=kwargs)  # fmt: skip


def test_vllm_with_adapters_from_a_folder():
    found = command("vLLM", lora_config={"dynamic_lora_loading_path": "/adapters"})

    assert ["--enable-lora"] == found[-1:]


def test_sglang_knows_no_negated_flags():
    found = command("SGLang", engine_kwargs={"context_length": 4096, "disable_radix_cache": False})

    assert [
        sys.executable, "-m", "sglang.launch_server", *AT, "--model-path", "Qwen/Qwen3-8B",
        "--served-model-name", "qwen", "--context-length", "4096",
    ] == found  # fmt: skip


def test_transformers():
    found = command("transformers", engine_kwargs={"continuous_batching": True})

    assert ["/bin/transformers", "serve", *AT, "--continuous-batching"] == found


def test_nothing_makes_no_flags():
    assert [] == flags_of({"a": None, "b": False})


def test_a_program_is_looked_for_beside_the_interpreter(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    monkeypatch.undo()
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.setenv("PATH", str(tmp_path / "nowhere"))

    with pytest.raises(UsageError, match="no program 'vllm': pip install vllm"):
        own_servers.program_of("vllm", "pip install vllm")
    (tmp_path / "vllm").touch()
    assert str(tmp_path / "vllm") == own_servers.program_of("vllm", "pip install vllm")
