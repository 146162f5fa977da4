"""Applications that the builders make: deployments, names and options."""

import logging
from typing import Any

import pytest
from pydantic import ValidationError

import pyserve
from pyserve import llm
from pyserve.api.graph import pack
from pyserve.api.ingress import ingress_of
from pyserve.errors import NotYetSupported, OptionError, UsageError
from pyserve.llm.deployment import DPServer, LLMServer, PDDecodeServer, PDPrefillServer
from pyserve.llm.deployment_options import deployment_name
from pyserve.llm.ingress import OpenAiIngress, make_fastapi_ingress, overrides_routes
from pyserve.types import ApplicationName

pytestmark = pytest.mark.parity("G-86")


def model(model_id: str = "qwen-0.5b", **fields) -> dict[str, Any]:
    return {
        "model_loading_config": {"model_id": model_id},
        "llm_engine": "simulated",
        **fields,
    }


def settings(**fields):
    return llm.build_llm_deployment(llm.LLMConfig(**model(**fields))).deployment.settings


class Adding(OpenAiIngress):
    """Has a route of its own."""

    async def count(self) -> int:
        return len(self._llm_deployments)


class Overriding(OpenAiIngress):
    """Does something else than the ingress."""

    async def chat(self, body, request):
        return await super().chat(body, request)


def test_a_deployment_is_named_after_its_class_and_model():
    app = llm.build_llm_deployment(llm.LLMConfig(**model("Qwen/Qwen2.5")))

    assert "LLMServer-Qwen--Qwen2_5" == app.name
    assert LLMServer is app.deployment.target
    assert "A-m" == llm.build_llm_deployment(llm.LLMConfig(**model("m")), name_prefix="A:").name
    assert (
        "A-x"
        == llm.build_llm_deployment(
            llm.LLMConfig(**model("m", deployment_config={"name": "x"})), name_prefix="A:"
        ).name
    )


@pytest.mark.parametrize("model_id", ["m" * 200, "7b", "-", "ü/ö", "a b"])
def test_every_model_id_makes_a_name(model_id: str):
    found = deployment_name("", model_id)

    assert found != deployment_name("", f"{model_id}.")
    assert 0 < len(found) <= 63


def test_options_of_the_configuration_are_those_of_the_deployment():
    found = settings(
        deployment_config={
            "max_ongoing_requests": 7,
            "autoscaling_config": {"min_replicas": 1, "max_replicas": 3},
            "ray_actor_options": {"num_cpus": 2, "runtime_env": {"env_vars": {"A": "1", "B": "2"}}},
        },
        runtime_env={"env_vars": {"B": "3"}},
    )

    assert (7, 3.5) == (
        found.max_ongoing_requests,
        found.autoscaling_config.target_ongoing_requests,
    )
    assert {"A": "1", "B": "3"} == found.env_vars
    assert (2, 0) == (found.resources.num_cpus, found.resources.num_gpus)
    assert (10, 10, 3600) == (
        found.health_check_period_s,
        found.health_check_timeout_s,
        found.startup_timeout_s,
    )


def test_what_overrides_comes_last():
    app = llm.build_llm_deployment(
        llm.LLMConfig(**model(deployment_config={"num_replicas": 2})),
        override_serve_options={"num_replicas": 3, "name": "mine"},
    )

    assert (3, "mine") == (app.deployment.num_replicas, app.name)


@pytest.mark.parametrize(
    ("fields", "gpus", "kind"),
    [
        ({"llm_engine": "simulated"}, 0, None),
        ({"llm_engine": "vLLM"}, 1, None),
        ({"llm_engine": "vLLM", "accelerator_type": "A10"}, 1, "A10G"),
        ({"llm_engine": "vLLM", "accelerator_config": {"kind": "cpu"}}, 0, None),
        ({"llm_engine": "SGLang", "engine_kwargs": {"tensor_parallel_size": 4}}, 4, None),
        ({"llm_engine": "llama.cpp", "accelerator_type": "L4"}, 1, "L4"),
        (
            {
                "llm_engine": "vLLM",
                "engine_kwargs": {"tensor_parallel_size": 2, "pipeline_parallel_size": 2},
                "placement_group_config": {"bundle_per_worker": {"CPU": 1, "GPU": 1}},
            },
            4,
            None,
        ),
        (
            {
                "llm_engine": "vLLM",
                "deployment_config": {"ray_actor_options": {"num_gpus": 0.5}},
            },
            0.5,
            None,
        ),
    ],
)
def test_a_replica_reserves_the_devices_of_its_engine(fields, gpus: float, kind: str | None):
    found = settings(**fields).resources

    assert (gpus, kind) == (found.num_gpus, found.accelerator_type)


def test_a_size_that_is_none_is_refused():
    with pytest.raises(UsageError, match=r"engine_kwargs\.tensor_parallel_size is 0"):
        settings(llm_engine="vLLM", engine_kwargs={"tensor_parallel_size": 0})


def test_experiments_without_an_effect_are_told(caplog: pytest.LogCaptureFixture):
    with caplog.at_level(logging.WARNING):
        settings(experimental_configs={"KV_EVENTS_PORT_BASE": 5557, "num_ingress_replicas": 2})

    assert 1 == len(caplog.messages)
    assert "experimental_configs.KV_EVENTS_PORT_BASE has no effect" in caplog.text


def test_a_replica_takes_twice_the_batch_of_its_engine():
    assert 512 == settings().max_ongoing_requests
    assert (
        64 == settings(llm_engine="vLLM", engine_kwargs={"max_num_seqs": 32}).max_ongoing_requests
    )


def test_one_model_is_an_application_by_itself():
    app = llm.build_openai_app({"llm_configs": [model()]})

    packed = pack(app, ApplicationName("llm"))
    assert ["LLMServer-qwen-0_5b"] == [each.name for each in packed.deployments]


def test_options_of_an_ingress_that_there_is_not_are_told(caplog: pytest.LogCaptureFixture):
    args = {"llm_configs": [model()], "ingress_deployment_config": {"num_replicas": 2}}

    assert 1 == llm.build_openai_app(args).deployment.num_replicas
    assert "ingress_deployment_config has no effect" in caplog.text


def test_several_models_have_a_root_that_holds_their_handles(tmp_path):
    file = tmp_path / "b.yaml"
    file.write_text("model_loading_config: {model_id: b}\nllm_engine: simulated\n")
    args = llm.LLMServingArgs(llm_configs=[llm.LLMConfig(**model("a")), str(file), model("c")])

    packed = pack(llm.build_openai_app(args), ApplicationName("llm"))

    names = [each.name for each in packed.deployments]
    assert ["LLMServer-a", "LLMServer-b", "LLMServer-c", "OpenAiIngress"] == names
    assert "OpenAiIngress" == packed.ingress
    assert {"LLMServer-a", "LLMServer-b", "LLMServer-c"} == {
        key.deployment for key in packed.deployments[-1].calls
    }


@pytest.mark.parametrize(
    ("args", "text"),
    [
        ({"llm_configs": []}, "at least 1"),
        ({}, "llm_configs"),
        ({"llm_configs": [model("a"), model("a")]}, "'a' twice"),
        ({"llm_configs": [model()], "ingress": 1}, "ingress"),
        ({"llm_configs": [model()], "ingress_cls_config": {"ingress_cls": dict}}, "OpenAiIngress"),
    ],
)
def test_arguments_that_do_not_fit_are_refused_by_name(args, text: str):
    with pytest.raises(ValidationError, match=text):
        llm.build_openai_app(args)


def test_a_file_that_is_missing_is_named():
    with pytest.raises(FileNotFoundError, match=r"no-such\.yaml"):
        llm.build_openai_app({"llm_configs": ["no-such.yaml"]})


@pytest.mark.parametrize(
    ("cls", "hidden"), [(Adding, False), (Overriding, True), (f"{__name__}:Overriding", True)]
)
def test_routes_that_do_otherwise_stand_in_the_place_of_the_ingress(cls, hidden: bool):
    app = llm.build_openai_app(
        {"llm_configs": [model()], "ingress_cls_config": {"ingress_cls": cls}}
    )

    (engine,) = app.kwargs["llm_deployments"].values()
    assert hidden == engine.kwargs["llm_config"].is_hidden
    assert ingress_of(app.deployment.target) is not None


def test_only_methods_of_the_routes_count_as_otherwise():
    assert [False, False, True] == [
        overrides_routes(each) for each in (OpenAiIngress, Adding, Overriding)
    ]


def test_the_root_has_as_many_replicas_as_the_models_want():
    args: dict[str, Any] = {
        "llm_configs": [model("a", experimental_configs={"num_ingress_replicas": 3}), model("b")]
    }

    assert 3 == llm.build_openai_app(args).deployment.num_replicas
    args["ingress_deployment_config"] = {"num_replicas": 2}
    assert 2 == llm.build_openai_app(args).deployment.num_replicas


@pytest.mark.parametrize(("minima", "expected"), [((0, 0), 0), ((0, 1), None)])
def test_the_root_goes_to_zero_with_all_models(minima: tuple[int, int], expected: int | None):
    configs = [
        model(name, deployment_config={"autoscaling_config": {"min_replicas": minimum}})
        for name, minimum in zip("ab", minima, strict=True)
    ]

    scaling = llm.build_openai_app({"llm_configs": configs}).deployment.settings.autoscaling_config

    assert expected == (None if scaling is None else scaling.min_replicas)


def test_make_fastapi_ingress_leaves_the_class_as_it_is():
    made = make_fastapi_ingress(Adding, endpoint_map={"count": lambda app: app.get("/count")})

    assert issubclass(made, Adding)
    assert (None, "Adding") == (ingress_of(Adding), made.__name__)
    assert ingress_of(made) is not None


def test_a_route_without_a_method_is_refused():
    with pytest.raises(UsageError, match=r"'counts', and Adding no such method"):
        make_fastapi_ingress(Adding, endpoint_map={"counts": lambda app: app.get("/count")})


def test_a_data_parallel_group_is_one_replica():
    config = llm.LLMConfig(
        **model(
            llm_engine="vLLM", engine_kwargs={"data_parallel_size": 2, "tensor_parallel_size": 2}
        )
    )

    app = llm.build_dp_deployment(config)

    assert (DPServer, 4) == (app.deployment.target, app.deployment.settings.resources.num_gpus)
    assert app.name == llm.build_dp_openai_app({"llm_config": config}).name


def test_a_data_parallel_group_on_several_machines_is_refused():
    config = llm.LLMConfig(
        **model(
            engine_kwargs={"data_parallel_size": 4}, experimental_configs={"dp_size_per_node": 2}
        )
    )

    with pytest.raises(UsageError, match="dp_size_per_node=2 with data_parallel_size=4"):
        llm.build_dp_deployment(config)


def test_prefill_apart_from_decode_is_refused_by_name_once_it_fits():
    half = model(engine_kwargs={"kv_transfer_config": {"kv_connector": "NixlConnector"}})

    with pytest.raises(ValidationError, match=r"prefill_config: engine_kwargs\.kv_transfer_config"):
        llm.build_pd_openai_app({"prefill_config": model(), "decode_config": half})
    with pytest.raises(ValidationError, match="both are one model"):
        llm.build_pd_openai_app(
            {"prefill_config": half, "decode_config": model("b", engine_kwargs={})}
        )
    with pytest.raises(NotYetSupported, match=r"pyserve\.llm\.build_pd_openai_app .* NIXL"):
        llm.build_pd_openai_app({"prefill_config": half, "decode_config": half})
    for cls in (PDDecodeServer, PDPrefillServer):
        with pytest.raises(NotYetSupported, match="NIXL"):
            cls(llm_config=None)


def test_the_options_serve_a_deployment_of_ones_own():
    config = llm.LLMConfig(**model())

    app = pyserve.deployment(LLMServer).options(**LLMServer.get_deployment_options(config))

    assert "LLMServer" == app.bind(config).name


def test_a_router_by_prefix_is_the_cache_index():
    def routed(**kwargs):
        router = {
            "request_router_class": "pyserve.llm.request_router:PrefixCacheAffinityRouter",
            "request_router_kwargs": kwargs,
        }
        return llm.LLMConfig(**model(deployment_config={"request_router_config": router}))

    app = llm.build_llm_deployment(routed(match_rate_threshold=0.2))

    assert "late_binding" == app.deployment.settings.request_router_config.policy
    with pytest.raises(OptionError, match="has no 'match_rate'"):
        llm.build_openai_app({"llm_configs": [routed(match_rate=0.2), model("b")]})
