"""Which plain HTTP requests of a replica are its model's, and which its application's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pyserve import inference
from pyserve.aio import HttpCall, ServerSettings
from pyserve.aio._server import Server
from pyserve.inference import Tensor, model_of
from pyserve.replica.inference import InferenceDoors
from pyserve.replica.plain.methods import find_methods
from tests.unit.replica.http.serving import Client

TENSOR = Tensor("x", "FP32", (-1,))


@inference.model(name="scaler", inputs=[TENSOR], outputs=[Tensor("y", "FP32", (-1,))])
class Scaler:
    async def infer(self, x: np.ndarray) -> np.ndarray:
        return x * 2


async def application(call: HttpCall) -> None:
    call.respond(200, (), b"the application")


async def ask(target: bytes, root_path: str) -> bytes:
    """Return the answer's body to a GET, of a replica with a model and an application."""
    model = model_of(Scaler)
    assert model is not None
    doors = InferenceDoors(model, find_methods(Scaler(), {}, None))
    server = Server(settings=ServerSettings(http=doors.in_front_of(application)))
    await server.start()
    native: Any = server.native
    try:
        answer = await Client(native)(method="GET", target=target, root_path=root_path)
    finally:
        await server.stop(None)
    return answer.body


@pytest.mark.parametrize(
    ("target", "root_path"),
    [
        (b"/v2/models/scaler/ready", "/v2/models/scaler"),
        (b"/v2/models/scaler/versions/1/ready?x=1", "/v2/models/scaler"),
        (b"/api/v2/models/scaler/ready", "/api/v2/models/scaler"),
        (b"/v2/models/scaler/ready", ""),  # a port of the replica's own
    ],
)
async def test_a_path_below_the_models_prefix_is_the_models(target: bytes, root_path: str):
    assert b'{"name":"scaler","ready":true}' == await ask(target, root_path)


@pytest.mark.parametrize(
    ("target", "root_path"),
    [
        (b"/", ""),
        (b"/v2/models/scalers/ready", ""),
        (b"/search?next=/v2/models/scaler/ready", ""),
        (b"/shop/v2/models/scaler/ready", "/shop"),
    ],
)
async def test_other_paths_are_the_applications(target: bytes, root_path: str):
    assert b"the application" == await ask(target, root_path)
