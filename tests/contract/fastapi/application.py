"""The application that both servers run: the shapes of FastAPI's tutorial, one route for each."""

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from fastapi import FastAPI, Request
from fastapi.middleware.cors import CORSMiddleware
from fastapi.middleware.gzip import GZipMiddleware
from fastapi.responses import JSONResponse
from fastapi.staticfiles import StaticFiles

import pyserve
from tests.contract.fastapi import bodies, parameters, responses, sockets

_HOP_BY_HOP = {"connection", "keep-alive", "transfer-encoding", "x-request-id"}


@contextlib.asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[dict[str, Any]]:
    app.state.log = ["started"]
    yield {"greeting": "from the lifespan"}


app = FastAPI(title="Shapes", version="1.2.3", lifespan=lifespan)
app.add_middleware(GZipMiddleware, minimum_size=2000)
app.add_middleware(
    CORSMiddleware,
    allow_origins=["https://friend.example"],
    allow_methods=["GET", "PUT"],
    allow_headers=["x-token"],
    allow_credentials=True,
)
for part in (parameters, bodies, responses, sockets):
    app.include_router(part.router)
app.mount("/static", StaticFiles(directory=Path(__file__).parent / "static", html=True))

inner = FastAPI(title="Inner")
app.mount("/inner", inner)


class Stamp:
    """A middleware that is an ASGI application itself."""

    def __init__(self, app: Any) -> None:
        self.app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        async def stamped(message: Any) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], (b"X-Stamp", scope["method"].encode())]
            await send(message)

        await self.app(scope, receive, stamped)


app.add_middleware(Stamp)


@inner.middleware("http")
async def count(request: Request, call_next: Any) -> Any:
    response = await call_next(request)
    response.headers["x-path-length"] = str(len(request.url.path))
    return response


@app.exception_handler(KeyError)
async def no_key(request: Request, error: KeyError) -> Any:
    return JSONResponse({"missing": str(error)}, status_code=418)


@app.get("/state")
async def state(request: Request) -> dict[str, str]:
    return {"greeting": request.state.greeting}


@app.get("/scope")
async def scope(request: Request) -> dict[str, Any]:
    plain = ("type", "asgi", "http_version", "scheme", "method", "root_path", "path")
    seen = request.scope
    return {
        **{name: seen[name] for name in plain},
        "raw_path": seen["raw_path"].decode(),
        "query_string": seen["query_string"].decode("latin-1"),
        "client": seen["client"][0],
        "has_server": isinstance(seen["server"][1], int),
        "url": str(request.url),
        "base_url": str(request.base_url),
        "url_for": str(request.url_for("scope")),
    }


@app.get("/headers")
async def headers(request: Request) -> list[tuple[str, str]]:
    raw = [(name.decode(), value.decode("latin-1")) for name, value in request.scope["headers"]]
    return sorted(each for each in raw if each[0] not in _HOP_BY_HOP)


@inner.get("/scope/{name}")
async def inner_scope(name: str, request: Request) -> dict[str, str]:
    return {
        "name": name,
        "root_path": request.scope["root_path"],
        "path": request.scope["path"],
        "url": str(request.url_for("inner_scope", name="x")),
    }


@inner.get("/")
async def inner_root() -> str:
    return "inner"


@inner.post("/raw")
async def inner_raw(request: Request) -> int:
    return len(await request.body())


inner.include_router(responses.router)


@pyserve.deployment
@pyserve.ingress(app)
class Shapes:
    """Has nothing but the application."""


deployed = Shapes.bind()
