"""Applications that are built from arguments: of the command line, or of a pydantic model."""

from pydantic import BaseModel

import pyserve as serve
from pyserve import Application
from pyserve.handle import DeploymentHandle


class HelloArgs(BaseModel):
    message: str
    repeat: int = 1


@serve.deployment
class HelloWorld:
    def __init__(self, message: str) -> None:
        self._message = message

    def __call__(self, request: object) -> str:
        return self._message


@serve.deployment
class Twice:
    def __init__(self, first: DeploymentHandle, second: DeploymentHandle) -> None:
        self._both = first, second

    async def __call__(self, request: object) -> list[str]:
        return [await each.remote(None) for each in self._both]


def app_builder(args: dict[str, str]) -> Application:
    return HelloWorld.bind(args["message"])


def typed_app_builder(args: HelloArgs) -> Application:
    return HelloWorld.bind(" ".join([args.message] * args.repeat))


def composed_app_builder(args: HelloArgs) -> Application:
    return Twice.bind(HelloWorld.bind(args.message), HelloWorld.bind(args.message.upper()))
