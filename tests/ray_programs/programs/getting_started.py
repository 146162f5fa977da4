"""Two models behind one address, the first program of the guides: summarize, then translate."""

from typing import Any

from starlette.requests import Request

import pyserve as serve
from pyserve.handle import DeploymentHandle

_FRENCH = {"it": "c'était", "was": "le", "best": "meilleur", "times": "temps"}


@serve.deployment(num_replicas=1, ray_actor_options={"num_cpus": 0.2, "num_gpus": 0})
class Translator:
    def __init__(self) -> None:
        self.model = _FRENCH

    def translate(self, text: str) -> str:
        return " ".join(self.model[word] for word in text.split())


@serve.deployment(ray_actor_options={"num_cpus": 0})
class Summarizer:
    def __init__(self, translator: DeploymentHandle) -> None:
        self.translator = translator

    def summarize(self, text: str) -> str:
        words = text.lower().replace(",", "").split()
        return " ".join(dict.fromkeys(word for word in words if word in _FRENCH))

    async def __call__(self, http_request: Request) -> str:
        english: Any = await http_request.json()
        return await self.translator.translate.remote(self.summarize(english))


app = Summarizer.bind(Translator.bind())
