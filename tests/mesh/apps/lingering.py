"""An application that cannot start, and whose other deployment takes its time to end."""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from fastapi import FastAPI

import pyserve
from pyserve.errors import DeploymentUnavailable
from tests.support.waiting import eventually


@pyserve.deployment
class Lingering:
    def __call__(self) -> str:
        return "here"

    async def aclose(self) -> None:
        await eventually(Path(os.environ["LINGERING_MAY_END"]).exists, 60)


_HANDLES: list[pyserve.DeploymentHandle] = []


@asynccontextmanager
async def lifespan(_: FastAPI) -> AsyncIterator[None]:
    while True:
        try:
            await _HANDLES[0].remote()
        except DeploymentUnavailable:
            await asyncio.sleep(0.05)
        else:
            raise RuntimeError("the model file is not there")
    yield


@pyserve.deployment
@pyserve.ingress(FastAPI(lifespan=lifespan))
class Web:
    def __init__(self, other: pyserve.DeploymentHandle) -> None:
        _HANDLES.append(other)


app = Web.bind(Lingering.bind())
