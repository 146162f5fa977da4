"""Language models: engines, and the classes for writing one.

An engine is a deployment that derives from ``Engine``; the ingress serves the HTTP APIs of OpenAI
and Anthropic in front of it. The engines here are imported lazily, so this package is cheap to
import. It also has the names of ``ray.serve.llm``.
"""

import importlib

from pyserve.later import absence

TYPE_CHECKING = False

if TYPE_CHECKING:
    from pyserve.llm.builders import (
        build_dp_deployment,
        build_dp_openai_app,
        build_llm_deployment,
        build_openai_app,
        build_pd_openai_app,
    )
    from pyserve.llm.config import CloudMirrorConfig, LLMConfig, LoraConfig, ModelLoadingConfig
    from pyserve.llm.deltas import Delta, Logprob, Timing, ToolCall, Usage
    from pyserve.llm.deployment import LLMServer
    from pyserve.llm.engine import Engine
    from pyserve.llm.engines.llama_cpp import LlamaCpp
    from pyserve.llm.engines.openai_url import OpenAIUrl
    from pyserve.llm.errors import (
        ContextLengthExceeded,
        EngineOverloaded,
        InvalidRequest,
        ModelNotFound,
    )
    from pyserve.llm.models import Load, Model
    from pyserve.llm.ready_made import smollm
    from pyserve.llm.requests import (
        EmbedRequest,
        GenerateRequest,
        Sampling,
        ScoreRequest,
        TokenizeRequest,
        TranscribeRequest,
    )
    from pyserve.llm.results import Embeddings, Scores, Tokens
    from pyserve.llm.serving_args import LLMServingArgs
    from pyserve.llm.simulated import SimulatedEngine

_MODULE_OF_NAME = {
    "CloudMirrorConfig": "config",
    "ContextLengthExceeded": "errors",
    "Delta": "deltas",
    "EmbedRequest": "requests",
    "Embeddings": "results",
    "Engine": "engine",
    "EngineOverloaded": "errors",
    "GenerateRequest": "requests",
    "InvalidRequest": "errors",
    "LLMConfig": "config",
    "LLMServer": "deployment",
    "LLMServingArgs": "serving_args",
    "LlamaCpp": "engines.llama_cpp",
    "Load": "models",
    "Logprob": "deltas",
    "LoraConfig": "config",
    "Model": "models",
    "ModelLoadingConfig": "config",
    "ModelNotFound": "errors",
    "OpenAIUrl": "engines.openai_url",
    "Sampling": "requests",
    "ScoreRequest": "requests",
    "Scores": "results",
    "SimulatedEngine": "simulated",
    "Timing": "deltas",
    "TokenizeRequest": "requests",
    "Tokens": "results",
    "ToolCall": "deltas",
    "TranscribeRequest": "requests",
    "Usage": "deltas",
    "build_dp_deployment": "builders",
    "build_dp_openai_app": "builders",
    "build_llm_deployment": "builders",
    "build_openai_app": "builders",
    "build_pd_openai_app": "builders",
    "smollm": "ready_made",
}

if not TYPE_CHECKING:  # A checker knows the names, and would take any other one too.

    def __getattr__(name: str) -> object:
        if name not in _MODULE_OF_NAME:
            raise absence(__name__, name)
        value = getattr(importlib.import_module(f"pyserve.llm.{_MODULE_OF_NAME[name]}"), name)
        globals()[name] = value  # The next access does not come here again.
        return value


__all__ = [
    "CloudMirrorConfig",
    "ContextLengthExceeded",
    "Delta",
    "EmbedRequest",
    "Embeddings",
    "Engine",
    "EngineOverloaded",
    "GenerateRequest",
    "InvalidRequest",
    "LLMConfig",
    "LLMServer",
    "LLMServingArgs",
    "LlamaCpp",
    "Load",
    "Logprob",
    "LoraConfig",
    "Model",
    "ModelLoadingConfig",
    "ModelNotFound",
    "OpenAIUrl",
    "Sampling",
    "ScoreRequest",
    "Scores",
    "SimulatedEngine",
    "Timing",
    "TokenizeRequest",
    "Tokens",
    "ToolCall",
    "TranscribeRequest",
    "Usage",
    "build_dp_deployment",
    "build_dp_openai_app",
    "build_llm_deployment",
    "build_openai_app",
    "build_pd_openai_app",
    "smollm",
]
