"""Prompts go to a small or a large model by length, a share of the users to the large one."""

import hashlib
from collections.abc import AsyncIterator
from typing import Any

from starlette.requests import Request
from starlette.responses import StreamingResponse

import pyserve as serve
from pyserve.handle import DeploymentHandle


@serve.deployment
class Model:
    def __init__(self, name: str) -> None:
        self.name = name

    async def generate(self, prompt: str) -> AsyncIterator[str]:
        yield f"[{self.name}]"
        for word in prompt.split():
            yield f" {word[::-1]}"


@serve.deployment(user_config={"long": 3, "large_percent": 0})
class Router:
    def __init__(self, small: DeploymentHandle, large: DeploymentHandle) -> None:
        self.small, self.large = (
            model.options(stream=True, method_name="generate") for model in (small, large)
        )

    def reconfigure(self, config: dict[str, Any]) -> None:
        self.long = config["long"]
        self.large_percent = config["large_percent"]

    def pick(self, prompt: str, user: str) -> DeploymentHandle:
        share = int(hashlib.sha256(user.encode()).hexdigest(), 16) % 100
        is_large = len(prompt.split()) > self.long or share < self.large_percent
        return self.large if is_large else self.small

    async def __call__(self, request: Request) -> StreamingResponse:
        chat = await request.json()
        prompt = chat["messages"][-1]["content"]
        tokens = self.pick(prompt, chat["user"]).remote(prompt)
        return StreamingResponse(tokens, media_type="text/event-stream")


models = [Model.options(name=name).bind(name) for name in ("Small", "Large")]
app = Router.bind(*models)
tested = Router.options(user_config={"long": 3, "large_percent": 100}).bind(*models)
