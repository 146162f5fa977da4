"""Deployments that call each other while they start."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from fastapi import FastAPI

import pyserve

_ENOUGH_S = 50.0


@pyserve.deployment
class Late:
    """Its constructor ends when there is a file."""

    def __init__(self, sign: str) -> None:
        while not Path(sign).exists():
            time.sleep(0.01)

    def __call__(self, value: int) -> int:
        return value + 1


def many(arguments: dict[str, str]) -> pyserve.Application:
    late = Late.options(num_replicas=int(arguments["count"]))
    application: pyserve.Application = late.bind(arguments["sign"])
    return application


@asynccontextmanager
async def lifespan(api: FastAPI) -> AsyncIterator[None]:
    """Call a deployment that starts: in vain at first, and then let it start."""
    late = pyserve.get_deployment_handle("Late", "default")
    try:
        await late.options(timeout_s=0.5).remote(1)
    except Exception as error:
        api.state.refused = f"{type(error).__name__}: {error}"
    second = asyncio.create_task(call(late))
    await asyncio.to_thread(Path(api.state.sign).touch)
    api.state.answer = await second
    yield


async def call(late: pyserve.DeploymentHandle) -> int:
    """Call once more, for as long as that may take."""
    return int(await late.options(timeout_s=_ENOUGH_S).remote(1))


def front(sign: str) -> FastAPI:
    """Build what calls the other one before it takes requests itself."""
    api = FastAPI(lifespan=lifespan)
    api.state.sign = sign

    @api.get("/")
    async def found() -> list[object]:
        return [api.state.refused, api.state.answer]

    return api


@pyserve.deployment(startup_timeout_s=4.0)
class Partner:
    """Calls another one before it is ready."""

    def __init__(self, *bound: object) -> None:
        del bound

    async def warmup(self) -> None:
        other = {"One": "Other", "Other": "One"}[pyserve.get_replica_context().deployment]
        await pyserve.get_deployment_handle(other, "default").remote()

    def __call__(self) -> None: ...


def build(arguments: dict[str, str]) -> pyserve.Application:
    """Return an application whose front calls the deployment behind it from its lifespan.

    Args:
        arguments: "sign" is the path of the file that lets that one start.
    """
    sign = arguments["sign"]

    # Not at the head of the module: each has an application of its own.
    @pyserve.deployment
    @pyserve.ingress(lambda: front(sign))
    class Front:
        def __init__(self, late: pyserve.DeploymentHandle) -> None:
            del late

    application: pyserve.Application = Front.bind(Late.bind(sign))
    return application


circle = Partner.options(name="One").bind(Partner.options(name="Other").bind())
