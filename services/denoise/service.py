"""Diffusion with continuous batching: requests choose their number of steps."""

from __future__ import annotations

from typing import Any

import grpc

import pyserve
from pyserve import Done, Emit
from services.denoise import denoise_pb2, denoise_pb2_grpc
from services.denoise.denoiser import ANY, SIDES, Images, Trajectory, advance, as_bytes
from services.digits.model import LABELS

STEPS_MAX = 200
_RUNNING = 32


# The unit of cost is a pixel. Only images of one resolution fit into one array, so that is the key.
@pyserve.deployment(env_vars={"OPENBLAS_NUM_THREADS": "1"})
@pyserve.continuous(max_running=_RUNNING, budget=_RUNNING * max(SIDES) ** 2)
class Denoise(denoise_pb2_grpc.DenoiseServicer):
    """Samples digits; requests of one resolution share steps at different noise levels."""

    Sample = pyserve.steps()
    Watch = pyserve.steps()

    def __init__(self) -> None:
        self._images = {side: Images.load(side) for side in SIDES}

    def cost(self, what: denoise_pb2.SampleRequest | Trajectory) -> int:
        return len(what.x) if isinstance(what, Trajectory) else what.side**2

    def key(self, request: denoise_pb2.SampleRequest) -> int:
        return request.side

    def admit(self, request: denoise_pb2.SampleRequest) -> Trajectory:
        has_digit = request.HasField("digit")
        if has_digit and not 0 <= request.digit < LABELS:
            raise _refusal(f"digit: expected 0 to {LABELS - 1}, got {request.digit}")
        if not 1 <= request.steps <= STEPS_MAX:
            raise _refusal(f"steps: expected 1 to {STEPS_MAX}, got {request.steps}")
        if request.side not in self._images:
            known = " or ".join(map(str, self._images))
            raise _refusal(f"side: expected {known}, got {request.side}")
        digit = request.digit if has_digit else ANY
        return Trajectory.begin(request.seed, request.side, digit, request.steps)

    def step(self, states: list[Trajectory]) -> list[Any]:
        side = round(len(states[0].x) ** 0.5)
        expected = advance(self._images[side], states)
        results: list[Any] = []
        for state, pixels in zip(states, expected, strict=True):
            left = state.steps - state.made
            image = denoise_pb2.Image(
                pixels=as_bytes(pixels), side=side, left=left, shared_by=len(states)
            )
            results.append(Emit(image) if left else Done(image))
        return results


def _refusal(text: str) -> pyserve.Abort:
    return pyserve.Abort(grpc.StatusCode.INVALID_ARGUMENT, text)


# mypy does not look at what class decorators return.
app = Denoise.bind()  # type: ignore[attr-defined]
