"""Clients that give up: the handler is cancelled, and may shield what has to be finished."""

import asyncio

from starlette.requests import Request

import pyserve as serve
from pyserve.handle import DeploymentHandle


@serve.deployment
class Log:
    def __init__(self) -> None:
        self.lines: list[str] = []

    def add(self, line: str) -> None:
        self.lines.append(line)

    def get(self) -> list[str]:
        return self.lines


@serve.deployment
class Sleeper:
    def __init__(self, log: DeploymentHandle) -> None:
        self.log = log

    async def snore(self) -> None:
        await asyncio.sleep(0.3)
        await self.log.add.remote("ZZZ")

    async def __call__(self, request: Request) -> None:
        await self.log.add.remote("received")
        try:
            if "shielded" in request.query_params:
                await asyncio.shield(self.snore())
            else:
                await asyncio.sleep(10_000)
        except asyncio.CancelledError:
            await self.log.add.remote("cancelled")
            raise


app = Sleeper.bind(Log.bind())
