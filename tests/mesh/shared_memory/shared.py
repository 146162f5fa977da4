"""An application that answers with what it was sent, by way of another deployment or not."""

from __future__ import annotations

import pyserve
from pyserve.handle import DeploymentHandle


@pyserve.deployment
class Echo:
    """Returns bodies unchanged."""

    async def __call__(self, body: bytes) -> bytes:
        return body


@pyserve.deployment
class Relay:
    """Asks another deployment for the answer."""

    def __init__(self, echo: DeploymentHandle) -> None:
        self._echo = echo

    async def __call__(self, body: bytes) -> bytes:
        answer: bytes = await self._echo.remote(body)
        return answer


app = Echo.bind()
relay = Relay.bind(Echo.bind())
