"""Text becomes sound: a generator of bytes with a media type, or one WAV."""

import io
import wave
from collections.abc import Iterator

import numpy as np
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

import pyserve as serve
from pyserve.handle import DeploymentHandle

RATE = 8000


@serve.deployment
class Voice:
    def speak(self, text: str) -> Iterator[np.ndarray]:
        times = np.arange(RATE // 100) / RATE
        for letter in text:
            yield (np.sin(2 * np.pi * 10 * ord(letter) * times) * 2**14).astype("<i2")


@serve.deployment
class Ingress:
    def __init__(self, voice: DeploymentHandle) -> None:
        self.voice = voice.options(stream=True)

    async def __call__(self, request: Request) -> Response:
        sound = self.voice.speak.remote(request.query_params["text"])
        if "stream" in request.query_params:
            pieces = (piece.tobytes() async for piece in sound)
            return StreamingResponse(pieces, media_type="audio/pcm")
        buffer = io.BytesIO()
        with wave.open(buffer, "wb") as file:
            file.setparams((1, 2, RATE, 0, "NONE", "not compressed"))
            file.writeframes(b"".join([piece.tobytes() async for piece in sound]))
        return Response(buffer.getvalue(), media_type="audio/wav")


app = Ingress.bind(Voice.bind())
