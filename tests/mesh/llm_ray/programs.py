"""Programs for Ray Serve LLM, with our import and an engine that needs no device."""

from __future__ import annotations

from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import Response

import pyserve as serve
from pyserve import llm
from pyserve.llm import LLMConfig, build_llm_deployment, build_openai_app
from pyserve.llm.cards import to_model_metadata
from pyserve.llm.deployment import LLMServer
from pyserve.llm.dev_ingress import build_dev_openai_app
from pyserve.llm.ingress import OpenAiIngress, make_fastapi_ingress
from pyserve.llm.openai_api_models import ChatCompletionRequest

RATES = {"step_s": 0.0, "step_s_per_request": 0.0, "prefill_tokens_per_s": 1e9}


def config(model_id: str = "qwen-0.5b", **fields) -> LLMConfig:
    return LLMConfig(
        **{
            "model_loading_config": {"model_id": model_id},
            "llm_engine": "simulated",
            "engine_kwargs": {"rates": RATES, "tokens": 4},
        }
        | fields
    )


def one_model() -> serve.Application:
    return build_openai_app({"llm_configs": [config()]})


def two_models() -> serve.Application:
    return build_openai_app({"llm_configs": [config("qwen-0.5b"), config("qwen-1.5b")]})


def direct() -> serve.Application:
    return build_llm_deployment(config())


def of_a_subclass() -> serve.Application:
    return build_llm_deployment(config(server_cls=f"{__name__}:Polite"))


class Polite(LLMServer):
    """Changes requests of handles before the engine gets them."""

    async def __init__(self, llm_config: LLMConfig, **kwargs) -> None:  # type: ignore[misc]
        await super().__init__(llm_config, **kwargs)
        self.greeted = 0

    async def chat(self, request: ChatCompletionRequest, raw_request_info: object = None):
        self.greeted += 1
        request.messages.append({"role": "user", "content": "Please."})
        return await super().chat(request, raw_request_info)


class Counting(OpenAiIngress):
    """Has a route of its own beside those of the ingress."""

    async def count(self) -> dict[str, int]:
        return {"models": len(self._llm_deployments)}


counting_app = FastAPI()
CountingIngress = make_fastapi_ingress(
    Counting, endpoint_map={"count": lambda app: app.get("/count")}, app=counting_app
)


def with_a_route() -> serve.Application:
    return build_openai_app(
        {"llm_configs": [config()], "ingress_cls_config": {"ingress_cls": CountingIngress}}
    )


class Shouting(OpenAiIngress):
    """Does otherwise than the ingress: its routes stand in the place of those."""

    def __init__(self, *args, mark: str = "!", **kwargs) -> None:
        super().__init__(*args, **kwargs)
        self.mark = mark

    async def chat(self, body: ChatCompletionRequest, request: Request) -> Response:
        response = await super().chat(body, request)
        response.headers["x-mark"] = self.mark
        return response


def with_another_chat() -> serve.Application:
    return build_openai_app(
        {
            "llm_configs": [config("qwen-0.5b"), config("qwen-1.5b")],
            "ingress_cls_config": {
                "ingress_cls": f"{__name__}:Shouting",
                "ingress_extra_kwargs": {"mark": "!!"},
            },
        }
    )


class Controlled(llm.Engine):
    """Can be put to sleep, and has one worker."""

    def __init__(self) -> None:
        self.is_asleep = False

    async def generate(self, request):
        yield "awake"

    async def sleep(self, level: int = 1) -> None:
        self.is_asleep = level == 1

    async def wakeup(self) -> None:
        self.is_asleep = False

    async def is_sleeping(self) -> bool:
        return self.is_asleep

    async def collective_rpc(self, method, timeout, args, kwargs):
        return [f"{method}{args}{kwargs}"]


def controlled() -> serve.Application:
    return build_dev_openai_app(
        {
            "llm_configs": [
                config(
                    "m",
                    llm_engine=f"{__name__}:Controlled",
                    engine_kwargs={},
                    deployment_config={"num_replicas": 2},
                )
            ]
        }
    )


class Adapted(llm.Engine):
    """Answers with the adapter that it has loaded."""

    def __init__(self) -> None:
        self.loaded: set[str] = set()

    async def generate(self, request):
        yield f"{request.model}+{request.adapter if request.adapter in self.loaded else ''}"

    async def load_adapter(self, name: str, path: str) -> None:
        self.loaded.add(name)

    async def unload_adapter(self, name: str) -> None:
        self.loaded.discard(name)


def with_adapters(folder: str) -> serve.Application:
    adapted = config(
        "m",
        llm_engine=f"{__name__}:Adapted",
        engine_kwargs={},
        lora_config={"dynamic_lora_loading_path": folder, "max_num_adapters_per_replica": 1},
    )
    return build_openai_app({"llm_configs": [adapted]})


def by_hand() -> serve.Application:
    """The parts of ``build_openai_app`` put together, as the documentation of Ray has it."""
    configs = [config("qwen-0.5b"), config("qwen-1.5b")]
    deployments = {
        each.model_id: serve.deployment(LLMServer)
        .options(name=f"Server{number}", **LLMServer.get_deployment_options(each))
        .bind(each)
        for number, each in enumerate(configs)
    }
    ingress = make_fastapi_ingress(OpenAiIngress)
    options = OpenAiIngress.get_deployment_options(llm_configs=configs)
    app: serve.Application = (
        serve.deployment(ingress)
        .options(**options)
        .bind(
            llm_deployments=deployments,
            model_cards={each.model_id: to_model_metadata(each.model_id, each) for each in configs},
        )
    )
    return app


def with_prefix_affinity() -> serve.Application:
    router = {
        "request_router_class": "pyserve.llm.request_router:PrefixCacheAffinityRouter",
        "request_router_kwargs": {"imbalanced_threshold": 10},
    }
    return build_llm_deployment(
        config(
            server_cls=f"{__name__}:Telling",
            deployment_config={"num_replicas": 3, "request_router_config": router},
        )
    )


class Telling(LLMServer):
    """Tells which replica has answered."""

    async def where(self, _request: object) -> str:
        return str(serve.get_replica_context().replica_id)

    async def chat(self, request: ChatCompletionRequest, raw_request_info: object = None):
        answers = await super().chat(request)
        return self._with_name(answers)

    async def _with_name(self, answers):
        async for answer in answers:
            answer.id = str(serve.get_replica_context().replica_id)
            yield answer


def broken() -> serve.Application:
    return llm.build_llm_deployment(config(llm_engine="vLLM", accelerator_config={"kind": "cpu"}))
