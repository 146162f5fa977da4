"""The modules and names that code for Ray Serve imports, and what they say when used."""

import importlib
import subprocess
import sys

import pytest

import pyserve
from pyserve.aio import ServicerContext
from pyserve.errors import NotYetSupported

# As `from ray.serve.<module> import <name>`.
_NAMES = {
    "config": "AutoscalingConfig AutoscalingContext AutoscalingPolicy AggregationFunction "
    "BackpressureConfig ControllerOptions DeploymentMode HTTPOptions ProxyLocation "
    "RequestRouterConfig gRPCOptions",
    "context": "ReplicaContext ReplicaRank",
    "grpc_util": "RayServegRPCContext gRPCInputStream",
    "handle": "DeploymentHandle DeploymentResponse DeploymentResponseGenerator "
    "DeploymentBroadcastResponse",
    "llm": "LLMConfig LLMServingArgs ModelLoadingConfig CloudMirrorConfig LoraConfig LLMServer "
    "build_llm_deployment build_openai_app build_pd_openai_app build_dp_deployment "
    "build_dp_openai_app",
    "llm.deployment": "LLMServer PDDecodeServer PDPrefillServer DPServer",
    "llm.ingress": "OpenAiIngress make_fastapi_ingress",
    "llm.openai_api_models": "ChatCompletionRequest ChatCompletionResponse "
    "ChatCompletionStreamResponse CompletionRequest CompletionResponse CompletionStreamResponse "
    "EmbeddingRequest EmbeddingResponse TranscriptionRequest TranscriptionResponse "
    "TranscriptionStreamResponse ErrorResponse",
    "llm.request_router": "PrefixCacheAffinityRouter KVAwareRouter",
    "metrics": "Counter Gauge Histogram",
    "request_router": "FIFOMixin LocalityMixin MultiplexMixin PendingRequest ReplicaID "
    "RequestRouter RunningReplica",
    "schema": "ServeDeploySchema ServeApplicationSchema DeploymentSchema RayActorOptionsSchema "
    "HTTPOptionsSchema gRPCOptionsSchema ServeInstanceDetails ApplicationDetails "
    "DeploymentDetails ReplicaDetails ProxyDetails LoggingConfig TracingConfig EncodingType "
    "CeleryAdapterConfig TaskProcessorConfig TaskResult",
    "task_consumer": "task_consumer task_handler instantiate_adapter_from_config",
}
_LATER = {
    "schema": "CeleryAdapterConfig TaskProcessorConfig TaskResult",
    "task_consumer": _NAMES["task_consumer"],
}


def _pairs(names: dict[str, str]) -> list[tuple[str, str]]:
    return [(module, name) for module, text in names.items() for name in text.split()]


@pytest.mark.parametrize(("module", "name"), _pairs(_NAMES))
def test_a_name_of_ray_serve_is_where_it_is_there(module: str, name: str):
    assert getattr(importlib.import_module(f"pyserve.{module}"), name) is not None


@pytest.mark.parametrize(("module", "name"), _pairs(_LATER))
def test_what_comes_later_says_so_when_it_is_used(module: str, name: str):
    with pytest.raises(NotYetSupported, match=rf"pyserve\.[\w.]*{name} comes with .*; until then"):
        getattr(getattr(pyserve, module), name)("requests", description="how many")


def test_a_class_that_derives_from_one_of_them_is_refused_by_its_name():
    class Mine(pyserve.schema.TaskResult):
        pass

    with pytest.raises(NotYetSupported, match=r"pyserve\.[a-z_]+\.TaskResult"):
        Mine()


def test_the_context_of_a_call_has_ray_serves_name():
    assert pyserve.grpc_util.RayServegRPCContext is ServicerContext


def test_an_unknown_model_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'ServeDeploySchemas'"):
        _ = pyserve.schema.ServeDeploySchemas  # type: ignore[attr-defined]


def _run(code: str) -> str:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert (0, "") == (done.returncode, done.stderr)
    return done.stdout.strip()


def test_only_the_models_load_pydantic():
    code = """
import sys
import pyserve
assert "pyserve.config" not in sys.modules
pyserve.LoggingConfig, pyserve.schema.LoggingConfig, pyserve.metrics.Counter
import pyserve.llm
assert "pydantic" not in sys.modules
assert not [each for each in sys.modules if each.startswith("pyserve.llm.")]
pyserve.schema.ServeDeploySchema
print("pydantic" in sys.modules)
"""

    assert "True" == _run(code)
