"""Both services in a real mesh, through its ingress and the generated stubs."""

import re
import subprocess
import sys

import grpc
import pytest

import pyserve
from services.digits import dataset, digits_pb2, digits_pb2_grpc
from services.digits import service as digits
from services.echo import echo_pb2, echo_pb2_grpc
from services.echo import service as echo

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def address():
    pyserve.start(address="127.0.0.1:0")
    try:
        pyserve.run(digits.app, name="digits")
        pyserve.run(echo.app, name="echo")
        yield pyserve.status().addresses[0]
    finally:
        pyserve.shutdown()


@pytest.fixture
async def channel(address):
    async with grpc.aio.insecure_channel(address) as channel:
        yield channel


def images(count):
    part = dataset.load().held_out
    requests = [digits_pb2.ClassifyRequest(pixels=each.tobytes()) for each in part.images[:count]]
    return requests, part.labels[:count].tolist()


async def test_digits_are_named_with_probabilities(channel):
    requests, labels = images(1)
    reply = await digits_pb2_grpc.DigitsStub(channel).Classify(requests[0], timeout=30)
    assert labels[0] == reply.label
    assert 10 == len(reply.probabilities)
    assert pytest.approx(1) == sum(reply.probabilities)
    assert max(reply.probabilities) == reply.probabilities[reply.label]
    assert reply.replica_id.startswith("Digits#")


async def test_a_stream_of_images_is_answered_in_order_and_in_batches(channel):
    requests, labels = images(100)
    call = digits_pb2_grpc.DigitsStub(channel).ClassifyStream(iter(requests), timeout=20)
    replies = [reply async for reply in call]
    right = sum(reply.label == label for reply, label in zip(replies, labels, strict=True))
    assert right >= 95
    assert max(reply.batch_size for reply in replies) > 1


@pytest.mark.parametrize(
    ("pixels", "text"),
    [
        (bytes(63), "pixels: expected 64 bytes (8 x 8, row by row), got 63"),
        (bytes(65), "pixels: expected 64 bytes (8 x 8, row by row), got 65"),
        (b"\x11" * 64, "pixels: expected values from 0 to 16, got 17"),
    ],
)
async def test_a_wrong_image_fails_alone_and_says_why(channel, pixels, text):
    stub = digits_pb2_grpc.DigitsStub(channel)
    requests, labels = images(4)
    sound = [stub.Classify(request, timeout=30) for request in requests]
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await stub.Classify(digits_pb2.ClassifyRequest(pixels=pixels), timeout=30)
    assert (grpc.StatusCode.INVALID_ARGUMENT, text) == (caught.value.code(), caught.value.details())
    assert labels == [(await call).label for call in sound]


async def test_a_wrong_image_ends_its_stream(channel):
    requests, _ = images(1)
    bad = digits_pb2.ClassifyRequest(pixels=b"short")
    call = digits_pb2_grpc.DigitsStub(channel).ClassifyStream(iter([*requests, bad]), timeout=30)
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        _ = [reply async for reply in call]
    assert grpc.StatusCode.INVALID_ARGUMENT is caught.value.code()


async def test_a_forked_child_keeps_no_listener_and_is_told_about_the_runtime(channel):
    reply = await echo_pb2_grpc.EchoStub(channel).Fork(echo_pb2.ForkRequest(), timeout=30)
    assert [] == list(reply.listening)
    assert reply.runtime_error_type in {"RuntimeForked", "RuntimeError"}
    assert "pyserve cannot be used in a forked process" in reply.runtime_error
    assert "spawn" in reply.runtime_error


async def test_a_replica_answers_after_a_fork(channel):
    stub = echo_pb2_grpc.EchoStub(channel)
    await stub.Fork(echo_pb2.ForkRequest(), timeout=30)
    reply = await stub.Perform(echo_pb2.PerformRequest(payload=b"x", describe=True), timeout=30)
    assert b"x" == reply.payload
    assert reply.facts.replica_id.startswith("Echo#")


@pytest.mark.timeout(120)
def test_the_demonstration_exits_with_0_and_prints_what_came_back(address):
    """It leaves the mesh of these tests alone."""
    command = [sys.executable, "-m", "services.digits.demo", "--rounds", "2"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert 0 == done.returncode, done.stdout + done.stderr
    for words in ("accuracy", "requests/s", "p50", "p99", "mean batch size"):
        assert words in done.stdout
    assert 2 == len(re.findall(r"^  Digits#\w+ +[1-9]\d* answers$", done.stdout, re.MULTILINE))
    assert address == pyserve.status().addresses[0]
