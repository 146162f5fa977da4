"""The values of ``LLMConfig.llm_engine``: the engine of each, and its arguments."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from pyserve.api.code import import_attribute, unwrap
from pyserve.config.parts import hint
from pyserve.errors import ImportPathError, KindError, UsageError
from pyserve.signatures import read_signature

if TYPE_CHECKING:
    from pyserve.llm.config import LLMConfig
    from pyserve.llm.engine import Engine

Arguments = Callable[["LLMConfig", str], dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Known:
    """An engine that has a name.

    Attributes:
        path: The import path of its class.
        arguments: Makes those of its constructor from the model's configuration and the place of
            its files on this machine.
        package: What it needs to be imported; ``""``: nothing.
        install: The command that installs it.
        is_on_gpu: Whether it runs on GPUs unless something else is said.
    """

    path: str
    arguments: Arguments
    package: str = ""
    install: str = ""
    is_on_gpu: bool = False


def checked_engine(value: object) -> object:
    """Return the name of an engine as it is spelt here, an import path, or a class.

    Raises:
        ValueError: It is none of them.
    """
    if isinstance(value, str):
        if (known := _BY_LOWER.get(value.lower())) is not None:
            return known
        if "." not in value and ":" not in value:
            also = "or the import path of a pyserve.llm.Engine, 'module:Class'"
            raise ValueError(f"there is no engine {value!r}; {hint(value, ENGINES)}, {also}")
        return value
    target = unwrap(value)
    if not isinstance(target, type) or not callable(getattr(target, "generate", None)):
        raise ValueError(f"{value!r} is no engine; write a name, or a class of pyserve.llm.Engine")
    return target


def imported(field: str, path: str) -> Any:
    """Import ``module:Class`` or ``module.Class``.

    Raises:
        ImportPathError: It cannot be imported; the text has the field.
    """
    if ":" not in path:
        module, _, name = path.rpartition(".")
        path = f"{module}:{name}"
    try:
        return unwrap(import_attribute(path))
    except ImportPathError as error:
        raise ImportPathError(f"{field}: {error}") from error


def is_on_gpu(config: LLMConfig) -> bool:
    """Return whether replicas of the model reserve GPUs."""
    if config.accelerator_kind is not None:
        return config.accelerator_kind == "gpu"
    known = ENGINES.get(config.llm_engine) if isinstance(config.llm_engine, str) else None
    return known is not None and known.is_on_gpu


def workers_of(config: LLMConfig) -> int:
    """Return how many workers the engine has, by its parallel sizes.

    Raises:
        UsageError: A size is no positive integer.
    """
    count = 1
    for name in ("tensor_parallel_size", "pipeline_parallel_size", "data_parallel_size"):
        size = config.engine_kwargs.get(name, 1)
        if isinstance(size, bool) or not isinstance(size, int) or size < 1:
            raise UsageError(f"engine_kwargs.{name} is {size!r}; use an integer from 1 on")
        count *= size
    return count


def make_engine(config: LLMConfig, source: str, engine_cls: type | None = None) -> Engine:
    """Construct the engine of a model, which is not started yet.

    Args:
        config: Of the model.
        source: Where its files are on this machine, or their Hugging Face id.
        engine_cls: The class that is taken instead of the configured one.

    Raises:
        UsageError: A package is missing, or the class does not take the arguments.
    """
    chosen: Any = config.llm_engine if engine_cls is None else engine_cls
    known = ENGINES.get(chosen) if isinstance(chosen, str) else None
    target: Any
    if known is None:
        target = imported("llm_engine", chosen) if isinstance(chosen, str) else unwrap(chosen)
        given = {"llm_config": config} if _takes_config(target) else dict(config.engine_kwargs)
    else:
        _check_installed(chosen, known)
        target = imported("llm_engine", known.path)
        given = known.arguments(config, source)
    try:
        read_signature(target).bind(**given)
    except TypeError as error:
        raise UsageError(
            f"the engine {target.__qualname__} of {config.model_id!r} cannot be made with "
            f"engine_kwargs={config.engine_kwargs!r}: {error}"
        ) from error
    return _checked_instance(target(**given))


def _takes_config(target: Any) -> bool:
    try:
        return "llm_config" in read_signature(target).parameters
    except (TypeError, ValueError):
        return False


def _check_installed(name: str, known: Known) -> None:
    if known.package and find_spec(known.package) is None:
        raise UsageError(
            f"llm_engine={name!r} needs the package {known.package!r}, which the replica does not "
            f"have: {known.install}"
        )


def _checked_instance(made: Any) -> Engine:
    from pyserve.llm.engine import Engine

    if inspect.isawaitable(made) or not isinstance(made, Engine):
        raise KindError(f"{made!r} is no pyserve.llm.Engine, from which engines derive")
    return made


def _simulated(config: LLMConfig, _source: str) -> dict[str, Any]:
    given = dict(config.engine_kwargs)
    if isinstance(given.get("rates"), Mapping):
        from pyserve.llm.simulated.scheduler import Rates

        given["rates"] = Rates(**given["rates"])
    takes_adapters = config.lora_config is not None
    return {"model": config.model_id, "takes_adapters": takes_adapters} | given


def _llama_cpp(config: LLMConfig, source: str) -> dict[str, Any]:
    # Without a source it is the engine's own small model.
    given = {} if config.model_loading_config.model_source is None else {"model": source}
    return {"name": config.model_id} | given | config.engine_kwargs


def _openai(config: LLMConfig, _source: str) -> dict[str, Any]:
    return {"models": {config.model_id: config.model_source}} | config.engine_kwargs


def _own_server(config: LLMConfig, source: str) -> dict[str, Any]:
    given = {"served_name": config.model_id, "model": source, "options": config.engine_kwargs}
    tokenizer = config.model_loading_config.tokenizer_source
    return given if tokenizer is None else given | {"tokenizer": tokenizer}


def _vllm(config: LLMConfig, source: str) -> dict[str, Any]:
    lora = config.lora_config
    loads = lora is not None and lora.dynamic_lora_loading_path is not None
    return _own_server(config, source) | {"loads_adapters": loads}


_SERVERS = "pyserve.llm.engines.own_servers"
ENGINES: Mapping[str, Known] = {
    "vLLM": Known(f"{_SERVERS}:VLLM", _vllm, "vllm", "pip install vllm", is_on_gpu=True),
    "SGLang": Known(
        f"{_SERVERS}:SGLang", _own_server, "sglang", "pip install 'sglang[all]'", is_on_gpu=True
    ),
    "transformers": Known(
        f"{_SERVERS}:Transformers",
        _own_server,
        "transformers",
        "pip install 'transformers[serving]'",
        is_on_gpu=True,
    ),
    "llama.cpp": Known(
        "pyserve.llm.engines.llama_cpp:LlamaCpp",
        _llama_cpp,
        "xllamacpp",
        "pip install 'pyserve-mesh[llama-cpp]'",
    ),
    "openai": Known("pyserve.llm.engines.openai_url:OpenAIUrl", _openai),
    "simulated": Known("pyserve.llm.simulated:SimulatedEngine", _simulated),
}
"""The engines that have names."""
_BY_LOWER = {name.lower(): name for name in ENGINES}
