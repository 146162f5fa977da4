"""An image is uploaded, made small by one deployment, and named by another; others see arrays."""

import io

import numpy as np
from PIL import Image
from starlette.datastructures import UploadFile
from starlette.requests import Request
from starlette.responses import Response

import pyserve as serve
from pyserve.handle import DeploymentHandle

_NAMES = ("red", "green", "blue")


@serve.deployment
class Preprocessor:
    def __call__(self, image: Image.Image, size: int = 8) -> np.ndarray:
        return np.asarray(image.convert("RGB").resize((size, size)), dtype=np.float64) / 255


@serve.deployment
class Classifier:
    @serve.batch(max_batch_size=4, batch_wait_timeout_s=0.05)
    async def __call__(self, pixels: list[np.ndarray]) -> list[dict[str, float]]:
        means = np.stack(pixels).mean(axis=(1, 2))
        scores = np.exp(means) / np.exp(means).sum(axis=1, keepdims=True)
        return [dict(zip(_NAMES, each.round(3).tolist(), strict=True)) for each in scores]


@serve.deployment
class Ingress:
    def __init__(self, preprocessor: DeploymentHandle, classifier: DeploymentHandle) -> None:
        self.preprocessor = preprocessor
        self.classifier = classifier

    async def __call__(self, request: Request) -> object:
        if request.method == "GET":
            return self.imagine(**request.query_params)
        file = (await request.form())["file"]
        assert isinstance(file, UploadFile)
        image = Image.open(io.BytesIO(await file.read()))
        return await self.classifier.remote(self.preprocessor.remote(image))

    def imagine(self, name: str, size: str = "4") -> Response:
        buffer = io.BytesIO()
        Image.new("RGB", (int(size), int(size)), name).save(buffer, "PNG")
        return Response(content=buffer.getvalue(), media_type="image/png")


app = Ingress.bind(Preprocessor.bind(), Classifier.bind())
