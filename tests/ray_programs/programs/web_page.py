"""A page over two models that answer side by side: an ASGI application without FastAPI."""

import asyncio

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse
from starlette.routing import Route

import pyserve as serve
from pyserve.handle import DeploymentHandle


@serve.deployment
class TextGenerator:
    def __init__(self, style: str) -> None:
        self.style = style

    def __call__(self, text: str) -> str:
        return f"{text}, said the {self.style}"


def page() -> Starlette:
    async def form(request: Request) -> HTMLResponse:
        action = request.url_for("ask").path
        return HTMLResponse(f'<form action="{action}"><input name="text"></form>')

    async def ask(request: Request) -> JSONResponse:
        server = serve.get_replica_context().servable_object
        assert server is not None
        return JSONResponse(await server.fanout(request.query_params["text"]))  # type: ignore[attr-defined]

    return Starlette(routes=[Route("/", form), Route("/api/ask", ask)])


@serve.deployment
@serve.ingress(page)
class Page:
    def __init__(self, first: DeploymentHandle, second: DeploymentHandle) -> None:
        self.models = first, second

    async def fanout(self, text: str) -> list[str]:
        return await asyncio.gather(*[model.remote(text) for model in self.models])


app = Page.bind(TextGenerator.bind("poet"), TextGenerator.bind("clerk"))
