"""A deployment that remembers texts, and says so."""

import asyncio
import os

from starlette.requests import Request

import pyserve

_MISS_S = 0.03
"""What it takes to work out a text; one that is kept takes nothing."""


@pyserve.deployment(
    num_replicas=2, request_router_config=pyserve.RequestRouterConfig(max_attempts=3)
)
class Remembering:
    """Keeps what it is given under a key, up to a number of keys."""

    def __init__(self) -> None:
        self.texts: dict[str, str] = {}

    async def __call__(self, request: Request) -> dict[str, object]:
        """`remember` the key in the query, over HTTP."""
        return await self.remember(request.query_params["key"])

    async def look(self, key: str = "") -> dict[str, object]:
        """Return who this is, whether the key is there, and all that is."""
        return {"pid": os.getpid(), "found": key in self.texts, "keys": sorted(self.texts)}

    async def remember(self, key: str) -> dict[str, object]:
        """Keep something under the key, if nothing is; as `look` before that."""
        found = await self.look(key)
        if not found["found"]:
            await asyncio.sleep(_MISS_S)
            self.texts[key] = key.upper()
            pyserve.cache.stored([key])
        return found

    async def forget(self) -> dict[str, object]:
        """Forget all."""
        self.texts.clear()
        pyserve.cache.cleared()
        return await self.look()


remembering = Remembering.bind()
