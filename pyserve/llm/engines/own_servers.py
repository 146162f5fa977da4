"""vLLM, SGLang and transformers: their own servers, which the replica starts as child processes.

Their options become flags of these programs, as in their manuals. The machines that test this
package can run none of the three, so the tests run the commands with stand-ins for the programs.
"""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pyserve.errors import UsageError
from pyserve.llm.engines.http_client import HttpClient, origin_of
from pyserve.llm.engines.openai_url import OpenAIUrl
from pyserve.llm.requests import GenerateRequest

# Loading and compiling a large model takes many minutes.
_STARTUP_TIMEOUT_S = 3600.0
_OK = 200
_AT = ("--host", "127.0.0.1", "--port", "{port}")
# Options that stand for endpoints of vLLM, by the variables that open these.
_VLLM_ENVIRONMENT = {"VLLM_SERVER_DEV_MODE": "1"}
_VLLM_ADAPTERS = {"VLLM_ALLOW_RUNTIME_LORA_UPDATING": "True"}


class VLLM(OpenAIUrl):
    """``vllm serve``.

    Args:
        model: A Hugging Face id, or a path.
        served_name: The name that clients give.
        options: Those of the engine, such as ``{"max_model_len": 8192}``.
        tokenizer: Where the tokenizer is; ``None``: with the model.
        loads_adapters: Whether adapters are loaded while it runs.
        startup_timeout_s: How long it may take until it answers.

    Raises:
        UsageError: It is not installed.
    """

    def __init__(
        self,
        model: str,
        *,
        served_name: str,
        options: Mapping[str, Any] | None = None,
        tokenizer: str | None = None,
        loads_adapters: bool = False,
        startup_timeout_s: float = _STARTUP_TIMEOUT_S,
    ) -> None:
        given = dict(options or {})
        if tokenizer is not None:
            given.setdefault("tokenizer", tokenizer)
        if loads_adapters:
            given.setdefault("enable_lora", True)
        program = program_of("vllm", "pip install vllm")
        named = ("--served-model-name", served_name)
        super().__init__(
            models=[served_name],
            command=[program, "serve", model, *_AT, *named, *flags_of(given, negated="no-")],
            environment=_VLLM_ENVIRONMENT | (_VLLM_ADAPTERS if loads_adapters else {}),
            startup_timeout_s=startup_timeout_s,
            tasks=("generate", "chat", "embed"),
        )

    def served_name(self, request: GenerateRequest) -> str:
        """Return the server's name for the model of a request, or for its adapter."""
        return request.adapter or super().served_name(request)

    async def load_adapter(self, name: str, path: str) -> None:
        """Load an adapter from a folder.

        Raises:
            UsageError: The server refuses it.
        """
        await self._control("/v1/load_lora_adapter", {"lora_name": name, "lora_path": path})

    async def unload_adapter(self, name: str) -> None:
        """Let an adapter go."""
        await self._control("/v1/unload_lora_adapter", {"lora_name": name})

    async def reset_prefix_cache(self) -> None:
        """Let the engine forget the prompts that it has had."""
        await self._control("/reset_prefix_cache")

    async def sleep(self, level: int = 1) -> None:
        """Give back the device's memory; 1 keeps the weights in the host's, 2 drops them."""
        await self._control(f"/sleep?level={level}")

    async def wakeup(self) -> None:
        """Take the memory again."""
        await self._control("/wake_up")

    async def _control(self, path: str, body: Mapping[str, Any] | None = None) -> None:
        assert self._child is not None, "it has started"
        client = HttpClient(origin_of(f"http://127.0.0.1:{self._child.port}"), {})
        try:
            async with client.open("POST", path, dict(body or {})) as response:
                answer = (await response.read()).decode(errors="replace")
        finally:
            await client.close()
        if response.status != _OK:
            raise UsageError(f"vLLM answers POST {path} with {response.status}: {answer[:500]}")


class SGLang(OpenAIUrl):
    """``python -m sglang.launch_server``.

    Args:
        model: A Hugging Face id, or a path.
        served_name: The name that clients give.
        options: Those of the engine, such as ``{"context_length": 8192}``.
        tokenizer: Where the tokenizer is; ``None``: with the model.
        startup_timeout_s: How long it may take until it answers.
    """

    def __init__(
        self,
        model: str,
        *,
        served_name: str,
        options: Mapping[str, Any] | None = None,
        tokenizer: str | None = None,
        startup_timeout_s: float = _STARTUP_TIMEOUT_S,
    ) -> None:
        given = dict(options or {})
        if tokenizer is not None:
            given.setdefault("tokenizer_path", tokenizer)
        named = ("--model-path", model, "--served-model-name", served_name)
        start = (sys.executable, "-m", "sglang.launch_server")
        super().__init__(
            models=[served_name],
            command=[*start, *_AT, *named, *flags_of(given)],
            startup_timeout_s=startup_timeout_s,
            tasks=("generate", "chat", "embed"),
        )


class Transformers(OpenAIUrl):
    """``transformers serve``, which loads the model with the first request.

    Args:
        model: A Hugging Face id, or a path.
        served_name: The name that clients give.
        options: Those of the server, such as ``{"continuous_batching": True}``.
        startup_timeout_s: How long it may take until it answers.

    Raises:
        UsageError: It is not installed.
    """

    def __init__(
        self,
        model: str,
        *,
        served_name: str,
        options: Mapping[str, Any] | None = None,
        startup_timeout_s: float = _STARTUP_TIMEOUT_S,
    ) -> None:
        program = program_of("transformers", "pip install 'transformers[serving]'")
        super().__init__(
            models={served_name: model},
            command=[program, "serve", *_AT, *flags_of(options or {})],
            startup_timeout_s=startup_timeout_s,
        )


def program_of(name: str, install: str) -> str:
    """Return the path of a program that a package brings.

    Raises:
        UsageError: It is not there.
    """
    # Beside the interpreter first: the environment need not be activated.
    beside = Path(sys.executable).with_name(name)
    found = str(beside) if beside.is_file() else shutil.which(name)
    if found is None:
        raise UsageError(f"the replica has no program {name!r}: {install}")
    return found


def flags_of(options: Mapping[str, Any], negated: str | None = None) -> list[str]:
    """Return options as flags of a command.

    Args:
        options: By their names in Python; ``None`` leaves one out.
        negated: The prefix of the name of an option that is ``False``; ``None``: omit it.
    """
    return [each for name, value in options.items() for each in _flag(name, value, negated)]


def _flag(name: str, value: Any, negated: str | None) -> Iterator[str]:
    dashed = name.replace("_", "-")
    if value is None or (value is False and negated is None):
        return
    if isinstance(value, bool):
        yield f"--{dashed}" if value else f"--{negated}{dashed}"
        return
    yield f"--{dashed}"
    if isinstance(value, Mapping):
        yield json.dumps(value)
    elif isinstance(value, Sequence) and not isinstance(value, str):
        yield from map(str, value)
    else:
        yield str(value)
