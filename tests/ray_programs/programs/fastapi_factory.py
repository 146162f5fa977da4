"""An application that each replica builds, with what cannot be pickled, and its classifier."""

import threading

from fastapi import Depends, FastAPI, Request
from fastapi.responses import JSONResponse, Response
from pydantic import BaseModel

import pyserve as serve
from pyserve.handle import DeploymentHandle


class Text(BaseModel):
    text: str


@serve.deployment
class Classifier:
    def predict(self, text: str) -> dict[str, object]:
        return {"prediction": "positive" if "good" in text else "negative", "confidence": 0.9}


def build() -> FastAPI:
    app = FastAPI(title="Sentiment")
    app.state.lock = threading.Lock()  # does not travel

    @app.middleware("http")
    async def mark(request: Request, call_next) -> Response:
        response: Response = await call_next(request)
        response.headers["x-made-by"] = "factory"
        return response

    @app.exception_handler(ValueError)
    async def invalid(request: Request, error: ValueError) -> JSONResponse:
        return JSONResponse({"error": str(error)}, status_code=400)

    def classifier() -> DeploymentHandle:
        context = serve.get_replica_context()
        return serve.get_deployment_handle("Classifier", context.app_name)

    @app.post("/predict")
    async def predict(body: Text, handle: DeploymentHandle = Depends(classifier)):  # noqa: B008
        if not body.text.strip():
            raise ValueError("text cannot be empty")
        return await handle.predict.remote(body.text)

    return app


@serve.deployment
@serve.ingress(build)
class API:
    def __init__(self, classifier: DeploymentHandle) -> None:
        self.classifier = classifier


app = API.bind(Classifier.options(name="Classifier").bind())
