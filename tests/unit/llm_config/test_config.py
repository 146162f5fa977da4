"""What an ``LLMConfig`` may say, as in Ray Serve LLM, and what is refused by its name."""

import cloudpickle
import pytest
from pydantic import ValidationError

from pyserve import llm
from pyserve.llm.callbacks import CallbackBase
from pyserve.llm.config import PlacementGroupConfig
from pyserve.llm.deployment import LLMServer

pytestmark = pytest.mark.parity("G-86")


def config(**fields) -> llm.LLMConfig:
    return llm.LLMConfig(**{"model_loading_config": {"model_id": "qwen-0.5b"}} | fields)


class Server(LLMServer):
    """Of a user."""


def test_the_defaults_are_those_of_ray_serve_llm():
    found = config()

    assert "vLLM" == found.llm_engine
    assert "qwen-0.5b" == found.model_id == found.model_source
    assert {} == found.engine_kwargs == found.deployment_config == found.experimental_configs
    assert (None, None, None) == (found.runtime_env, found.accelerator_type, found.lora_config)
    assert found.log_engine_metrics
    assert CallbackBase is found.callback_config.callback_class
    assert (16, 30, 3) == tuple(
        getattr(llm.LoraConfig(), name)
        for name in ("max_num_adapters_per_replica", "download_timeout_s", "max_download_tries")
    )


def test_it_is_read_from_yaml(tmp_path):
    file = tmp_path / "model.yaml"
    file.write_text(
        "model_loading_config:\n  model_id: qwen\n  model_source: Qwen/Qwen2.5-0.5B-Instruct\n"
        "accelerator_type: A10\nengine_kwargs:\n  max_model_len: 8192\n"
        "deployment_config:\n  autoscaling_config:\n    min_replicas: 1\n    max_replicas: 2\n"
    )

    found = llm.LLMConfig.from_file(str(file))

    assert found == llm.LLMConfig.parse_yaml(file.read_text())
    assert "Qwen/Qwen2.5-0.5B-Instruct" == found.model_source
    assert ("A10G", 8192) == (found.accelerator_type, found.max_request_context_length)


def test_it_travels_to_replicas():
    given = config(llm_engine="simulated", lora_config={"dynamic_lora_loading_path": "/adapters"})
    there = cloudpickle.loads(cloudpickle.dumps(given.hidden()))

    assert given.model_dump() == there.model_dump()
    assert (False, True) == (given.is_hidden, there.is_hidden)


@pytest.mark.parametrize(
    ("name", "spelling"),
    [("vllm", "vLLM"), ("SGLANG", "SGLang"), ("llama.cpp", "llama.cpp"), ("a.b:C", "a.b:C")],
)
def test_engines_are_named_or_have_an_import_path(name: str, spelling: str):
    assert spelling == config(llm_engine=name).llm_engine


def test_an_engine_may_be_a_class():
    assert llm.SimulatedEngine is config(llm_engine=llm.SimulatedEngine).llm_engine


@pytest.mark.parametrize(
    ("fields", "place", "text"),
    [
        ({"model_loading_config": {}}, "model_loading_config.model_id", "required"),
        ({"model_loading_config": {"model_id": ""}}, "model_loading_config.model_id", "at least 1"),
        ({"engine_kwarg": {}}, "engine_kwarg", "not permitted"),
        ({"llm_engine": "vLMM"}, "llm_engine", "did you mean 'vLLM'"),
        ({"llm_engine": dict}, "llm_engine", "no engine"),
        ({"accelerator_type": "TPU-V4"}, "accelerator_type", "TPUs"),
        ({"accelerator_config": {"kind": "tpu"}}, "accelerator_config", "TPUs"),
        ({"accelerator_config": {"kind": "npu"}}, "accelerator_config.kind", "'cpu' or 'gpu'"),
        (
            {"accelerator_type": "A10G", "accelerator_config": {"kind": "cpu"}},
            "",
            "accelerator_type='A10G' is a GPU",
        ),
        (
            {"placement_group_config": {"bundles": [{"TPU": 1}]}},
            "placement_group_config",
            "TPUs cannot be had",
        ),
        ({"placement_group_config": {}}, "placement_group_config", "bundle_per_worker or bundles"),
        (
            {"placement_group_config": {"bundles": [{"GPU": 1}], "strategy": "STRICT_SPREAD"}},
            "placement_group_config",
            "'STRICT_SPREAD' cannot be had",
        ),
        ({"deployment_config": {"num_replica": 2}}, "deployment_config", "'num_replicas'"),
        ({"deployment_config": {"num_replicas": -1}}, "deployment_config", "num_replicas=-1"),
        (
            {"deployment_config": {"placement_group_bundles": []}},
            "deployment_config",
            "placement_group_config",
        ),
        ({"experimental_configs": {"x": 1}}, "experimental_configs", "has no 'x'"),
        (
            {"experimental_configs": {"num_router_replicas": 2}},
            "experimental_configs",
            "is called 'num_ingress_replicas'",
        ),
        (
            {"experimental_configs": {"num_ingress_replicas": 0}},
            "experimental_configs",
            "at least 1",
        ),
        (
            {"lora_config": {"max_num_adapters_per_replica": 0}},
            "lora_config.max_num_adapters_per_replica",
            "greater than 0",
        ),
        (
            {"lora_config": {"dynamic_lora_loading_path": "ftp://host/a"}},
            "lora_config.dynamic_lora_loading_path",
            "s3://",
        ),
        (
            {"lora_config": {}, "model_loading_config": {"model_id": "llama3:8b"}},
            "",
            "has a colon",
        ),
        (
            {"model_loading_config": {"model_id": "q", "model_source": {"bucket_uri": "/q"}}},
            "model_loading_config.model_source.CloudMirrorConfig.bucket_uri",
            "s3://",
        ),
        ({"engine_kwargs": {"disable_log_stats": True}}, "", "log_engine_metrics"),
        ({"server_cls": "no.such.module.Server"}, "server_cls", "no module"),
        ({"server_cls": dict}, "server_cls", "LLMServer"),
        ({"callback_config": {"callback": "x"}}, "callback_config.callback", "Unexpected"),
    ],
)
def test_a_refusal_names_the_field(fields, place: str, text: str):
    with pytest.raises(ValidationError) as caught:
        config(**fields)

    found = [(".".join(map(str, each["loc"])), each["msg"]) for each in caught.value.errors()]
    assert [] != [each for each in found if each[0].startswith(place) and text in each[1]], found


@pytest.mark.parametrize("path", [f"{__name__}:Server", f"{__name__}.Server"], ids=["colon", "dot"])
def test_a_server_class_may_be_an_import_path(path: str):
    assert Server.__qualname__ == config(server_cls=path).server_cls.__qualname__


@pytest.mark.parametrize(
    ("address", "kind"),
    [("s3://b/m", "s3"), ("gs://b/m", "gcs"), ("abfss://b/m", "abfss"), ("azure://b/m", "azure")],
)
def test_a_mirror_says_what_stores_it(address: str, kind: str):
    mirror = llm.CloudMirrorConfig(bucket_uri=address)

    assert kind == mirror.storage_type
    assert (
        address
        == config(model_loading_config={"model_id": "q", "model_source": mirror}).model_source
    )


def test_bundles_are_added_up_for_the_machine_of_all_workers():
    per_worker = PlacementGroupConfig(bundle_per_worker={"CPU": 2, "GPU": 1})
    each = PlacementGroupConfig(bundles=[{"CPU": 1, "GPU": 1}, {"GPU": 1}], strategy="STRICT_PACK")

    assert {"CPU": 8, "GPU": 4} == per_worker.total(4)
    assert {"CPU": 1, "GPU": 2} == each.total(4)
