"""Errors on their way up: an exception of one's own, a deadline, a retry by the caller."""

import asyncio

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

import pyserve as serve
from pyserve.exceptions import RequestCancelledError
from pyserve.handle import DeploymentHandle


class Unknown(Exception):
    """The word does not exist."""


@serve.deployment
class Dictionary:
    def __init__(self) -> None:
        self.asked: dict[str, int] = {}

    async def __call__(self, word: str) -> str:
        self.asked[word] = self.asked.get(word, 0) + 1
        if word == "slow":
            await asyncio.sleep(60)
        if word == "flaky" and self.asked[word] < 3:
            raise ConnectionError("the store is away")
        if word not in {"yes", "flaky"}:
            raise Unknown(word)
        return f"{word} found"


@serve.deployment
class Ingress:
    def __init__(self, dictionary: DeploymentHandle) -> None:
        self.dictionary = dictionary

    async def __call__(self, request: Request) -> Response:
        word = request.query_params["word"]
        try:
            return JSONResponse({"found": await self.look_up(word)})
        except Unknown as error:
            return JSONResponse({"unknown": str(error)}, status_code=404)
        except TimeoutError:
            return JSONResponse({"late": word}, status_code=504)

    async def look_up(self, word: str, attempts: int = 3) -> str:
        for attempt in range(attempts):
            try:
                return await asyncio.wait_for(self.dictionary.remote(word), timeout=0.5)
            except ConnectionError:
                if attempt == attempts - 1:
                    raise
        raise AssertionError("unreachable")

    async def cancel(self) -> str:
        response = self.dictionary.remote("slow")
        response.cancel()
        try:
            return await response
        except RequestCancelledError:
            return f"cancelled {response.cancelled()}"


app = Ingress.bind(Dictionary.bind())
