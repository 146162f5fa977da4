"""Responses by value and as references, in a deployment and in its driver."""

import asyncio

import pyserve as serve
from pyserve import ObjectRef
from pyserve.handle import DeploymentHandle, DeploymentResponse


@serve.deployment
class Preprocessor:
    def __call__(self, words: int) -> str:
        return " ".join(["hello"] * words)


@serve.deployment
class Downstream:
    def by_value(self, text: str) -> str:
        return f"value of {len(text)}"

    async def by_reference(self, wrapped: list[ObjectRef]) -> str:
        await asyncio.sleep(0.01)  # work that does not need the text yet
        return f"reference to {len(await wrapped[0])}"


@serve.deployment
class Ingress:
    def __init__(self, preprocessor: DeploymentHandle, downstream: DeploymentHandle) -> None:
        self._preprocessor = preprocessor
        self._downstream = downstream.options(_by_reference=True)

    async def __call__(self, mode: str, words: int = 2) -> str:
        response: DeploymentResponse = self._preprocessor.remote(words)
        if mode == "by_value":
            return await self._downstream.by_value.remote(response)
        reference: ObjectRef = await response._to_object_ref()
        return await self._downstream.by_reference.remote([reference])


app = Ingress.bind(Preprocessor.bind(), Downstream.bind())
