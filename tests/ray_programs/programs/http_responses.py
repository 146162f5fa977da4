"""Kinds of results of a handler over plain HTTP, and how requests are read."""

import asyncio
import dataclasses
from datetime import date

import numpy as np
from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response

import pyserve as serve


class Model(BaseModel):
    name: str
    layers: list[int]


@dataclasses.dataclass
class Point:
    x: int
    y: int


@serve.deployment
class Responses:
    """Answers by the path below its route prefix."""

    async def __call__(self, request: Request) -> object:
        await asyncio.sleep(0)
        answer = getattr(self, f"a_{request.url.path.rpartition('/')[2]}")
        return answer(request)

    def a_query(self, request: Request) -> object:
        return request.query_params

    def a_path(self, request: Request) -> object:
        return {"path": request.scope["path"], "root": request.scope["root_path"]}

    def a_text(self, request: Request) -> str:
        return f"Hello {request.headers['x-name']} by {request.method}"

    def a_bytes(self, request: Request) -> bytes:
        return b"\x00\x01"

    def a_array(self, request: Request) -> object:
        return {"scores": np.array([[0.5, 1.0]]), "best": np.int64(1), "f": np.float32(0.5)}

    def a_models(self, request: Request) -> object:
        return [Model(name="m", layers=[1, 2]), Point(1, 2), date(2024, 1, 2), {3}, (4, None)]

    def a_nothing(self, request: Request) -> None:
        return None

    def a_html(self, request: Request) -> Response:
        return HTMLResponse("<p>hi</p>")

    def a_teapot(self, request: Request) -> Response:
        return JSONResponse({"error": "teapot"}, status_code=418, headers={"x-kind": "pot"})

    def a_redirect(self, request: Request) -> Response:
        return RedirectResponse("/elsewhere", status_code=307)

    def a_error(self, request: Request) -> object:
        raise ValueError("what nobody outside shall read")


@serve.deployment
def no_argument() -> int:
    return 1


app = Responses.bind()
