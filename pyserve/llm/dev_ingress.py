"""Routes with which a trainer or an operator controls engines: sleep, pause, caches, weights.

They are for trusted callers only: anyone who can reach them can stop a model for all clients.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, Field
from starlette.responses import Response

from pyserve.api.deployment import Application
from pyserve.llm.builders import build_openai_app
from pyserve.llm.ingress import OpenAiIngress, Route, make_fastapi_ingress
from pyserve.llm.serving_args import LLMServingArgs


class ControlRequest(BaseModel):
    """The model that a request is for, and further arguments for its engine."""

    model: str
    options: dict[str, Any] = Field(default_factory=dict)


class CollectiveRpcRequest(BaseModel):
    """A method of the workers of a model's engine, and its arguments."""

    model: str
    method: str
    args: list[Any] = Field(default_factory=list)
    kwargs: dict[str, Any] = Field(default_factory=dict)
    timeout: float | None = None


class DevIngress(OpenAiIngress):
    """Has routes that act at all replicas of a model; an engine may lack some of them (501)."""

    async def sleep(self, body: ControlRequest) -> Response:
        """Let the engines give back their memory."""
        return await self._tell(body.model, "sleep", body.options)

    async def wakeup(self, body: ControlRequest) -> Response:
        """Let them take it again."""
        return await self._tell(body.model, "wakeup", body.options)

    async def is_sleeping(self, model: str) -> dict[str, bool]:
        """Say whether one of them sleeps."""
        return {"is_sleeping": any(await self._ask(model, "is_sleeping", {}))}

    async def pause(self, body: ControlRequest) -> Response:
        """Let the engines generate nothing until ``resume``."""
        return await self._tell(body.model, "pause", body.options)

    async def resume(self, body: ControlRequest) -> Response:
        """Let them go on."""
        return await self._tell(body.model, "resume", body.options)

    async def is_paused(self, model: str) -> dict[str, bool]:
        """Say whether one of them is paused."""
        return {"is_paused": any(await self._ask(model, "is_paused", {}))}

    async def reset_prefix_cache(self, body: ControlRequest) -> Response:
        """Let the engines forget the prompts that they have had."""
        return await self._tell(body.model, "reset_prefix_cache", body.options)

    async def collective_rpc(self, body: CollectiveRpcRequest) -> dict[str, Any]:
        """Call a method of all workers of all replicas."""
        given = {
            "method": body.method,
            "timeout": body.timeout,
            "args": tuple(body.args),
            "kwargs": body.kwargs,
        }
        found = await self._ask(body.model, "collective_rpc", given)
        return {
            "results": [
                {"replica": number, "worker_results": each} for number, each in enumerate(found)
            ]
        }

    async def _tell(self, model: str, method: str, options: Mapping[str, Any]) -> Response:
        await self._ask(model, method, options)
        return Response()

    async def _ask(self, model: str, method: str, options: Mapping[str, Any]) -> list[Any]:
        handle = self._llm_deployments.get(model)
        if handle is None:
            raise self._unknown(model)
        found: list[Any] = await handle.broadcast(method, **options)
        return found


DEV_ENDPOINTS: dict[str, Route] = {
    "sleep": lambda app: app.post("/sleep"),
    "wakeup": lambda app: app.post("/wakeup"),
    "is_sleeping": lambda app: app.get("/is_sleeping"),
    "pause": lambda app: app.post("/pause"),
    "resume": lambda app: app.post("/resume"),
    "is_paused": lambda app: app.get("/is_paused"),
    "reset_prefix_cache": lambda app: app.post("/reset_prefix_cache"),
    "collective_rpc": lambda app: app.post("/collective_rpc"),
}
"""The routes of ``DevIngress`` beside those of the ingress, by the names of its methods."""


def build_dev_openai_app(builder_config: LLMServingArgs | Mapping[str, Any]) -> Application:
    """Return what ``build_openai_app`` does, with these routes beside OpenAI's API.

    Args:
        builder_config: An ``LLMServingArgs``, or a mapping of its fields.

    Raises:
        ValueError: Something in it is not allowed; the text has its name.
    """
    args = LLMServingArgs.model_validate(builder_config).model_copy(deep=True)
    args.ingress_cls_config.ingress_cls = make_fastapi_ingress(
        DevIngress, endpoint_map=DEV_ENDPOINTS
    )
    return build_openai_app(args)
