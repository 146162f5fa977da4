"""All four kinds, metadata, status, deadlines, cancellation and compression."""

import grpc
import grpc.aio
import pytest

from services.echo import echo_pb2, echo_pb2_grpc
from tests.contract.foreign.calls import Call, Client, Message, Metadata, Outcome
from tests.contract.foreign.compressing import COMPRESS_KEY
from tests.contract.foreign.grpclib_client import GrpclibClient
from tests.support.relay import counting_relay
from tests.support.waiting import eventually

pytestmark = [pytest.mark.slow, pytest.mark.external]

MIB = 1024 * 1024
MESSAGES = tuple(Message(payload=bytes([index]) * index) for index in range(1, 6))
PAYLOADS = tuple(message.payload for message in MESSAGES)

# The documented exception: who made an answer that no replica made.
_ANSWERED_BY = "pyserve-answered-by"


def _select(metadata: Metadata, prefix: str) -> Metadata:
    return tuple(sorted((key, value) for key, value in metadata if key.startswith(prefix)))


def _leaked(outcome: Outcome) -> list[str]:
    keys = [key for key, _ in (*outcome.initial_metadata, *outcome.trailing_metadata)]
    return [key for key in keys if key.startswith("pyserve-") and key != _ANSWERED_BY]


async def _count(address: str) -> echo_pb2.CountReply:
    """Ask how the calls of the service ended so far; there is one replica."""
    async with grpc.aio.insecure_channel(address) as channel:
        return await echo_pb2_grpc.EchoStub(channel).Count(echo_pb2.CountRequest())


async def _no_handler_runs(address: str) -> bool:
    count = await _count(address)
    return count.started == count.succeeded + count.failed + count.cancelled


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        pytest.param(
            Call(method="Perform", messages=(Message(payload=b"\0\xff one"),)),
            Outcome(code=0, payloads=(b"\0\xff one",)),
            id="unary",
        ),
        pytest.param(
            Call(method="PerformStream", messages=(Message(payload=b"again"),), answers=5),
            Outcome(code=0, payloads=(b"again",) * 5),
            id="server streaming",
        ),
        pytest.param(
            Call(method="PerformStream", answers=0),
            Outcome(code=0),
            id="server streaming without an answer",
        ),
        pytest.param(
            Call(method="Collect", messages=MESSAGES),
            Outcome(code=0, collected=(5, 15)),
            id="client streaming",
        ),
        pytest.param(
            Call(method="Converse", messages=MESSAGES),
            Outcome(code=0, payloads=PAYLOADS),
            id="bidirectional, one answer before the next message",
        ),
        pytest.param(
            Call(method="Perform", messages=(Message(payload=bytes(range(256)) * 4096),)),
            Outcome(code=0, payloads=(bytes(range(256)) * 4096,)),
            id="1 MiB there and back",
        ),
        pytest.param(
            Call(messages=(Message(status_code=9, status_message="50 % größer\nals"),)),
            Outcome(code=9, message="50 % größer\nals"),
            id="a status with a message that is not ASCII",
        ),
        pytest.param(
            Call(
                method="PerformStream",
                messages=(Message(payload=b"x", status_code=10, status_message="late"),),
                answers=2,
            ),
            Outcome(code=10, message="late", payloads=(b"x", b"x")),
            id="a status after answers",
        ),
    ],
)
async def test_a_call_ends_as_grpc_says(
    call: Call, expected: Outcome, client: Client, address: str
):
    outcome = await client.perform(address, call)

    got = Outcome(
        code=outcome.code,
        message=outcome.message,
        payloads=outcome.payloads,
        collected=outcome.collected,
    )
    assert expected == got
    assert [] == _leaked(outcome)


async def test_an_unknown_method_is_named(client: Client, address: str):
    outcome = await client.perform(address, Call(method="Missing"))

    assert 12 == outcome.code


@pytest.mark.parametrize("method", ["Perform", "PerformStream"])
async def test_metadata_arrives_untouched_in_both_directions(
    method: str, client: Client, address: str
):
    binary = bytes(range(256))
    sent = (
        ("echo-initial-bytes-bin", binary),
        ("echo-initial-text", b"with spaces, and commas"),
        ("echo-trailing-bytes-bin", binary[::-1]),
        ("echo-trailing-text", b"~!@#$%^&*()"),
    )
    call = Call(method=method, messages=(Message(describe=True),), metadata=sent)

    outcome = await client.perform(address, call)

    assert 0 == outcome.code
    assert sent == _select(outcome.seen_metadata, "echo-")
    assert sent[:2] == _select(outcome.initial_metadata, "echo-")
    assert sent[2:] == _select(outcome.trailing_metadata, "echo-")


@pytest.mark.parametrize("method", ["Perform", "PerformStream", "Converse"])
async def test_a_deadline_ends_the_call_and_the_handler(method: str, client: Client, address: str):
    before = await _count(address)
    call = Call(method=method, messages=(Message(delay_s=60),), timeout_s=1.5)

    outcome = await client.perform(address, call)

    assert 4 == outcome.code
    assert 1.4 <= outcome.elapsed_s < 30
    await eventually(lambda: _no_handler_runs(address), what="the handler has ended")
    assert before.cancelled + 1 == (await _count(address)).cancelled


@pytest.mark.parametrize(
    "call",
    [
        pytest.param(
            Call(method="PerformStream", answers=1_000_000, cancel_after=3),
            id="a stream under way",
        ),
        pytest.param(
            Call(method="Converse", messages=(Message(), Message()), cancel_after=1),
            id="a handler that awaits the next message",
        ),
        pytest.param(Call(messages=(Message(delay_s=60),), cancel_after=0), id="before any answer"),
    ],
)
async def test_a_cancellation_reaches_the_handler(call: Call, client: Client, address: str):
    outcome = await client.perform(address, call)

    assert 1 == outcome.code
    assert len(outcome.payloads) >= (call.cancel_after or 0)
    await eventually(lambda: _no_handler_runs(address), what="the handler has ended")


async def test_a_compressed_request_is_small_on_the_wire(client: Client, address: str):
    if not client.compresses:
        pytest.skip(f"{client.name} has no compression")
    message = Message(payload=bytes(MIB), response_bytes=1)

    async with counting_relay(address) as relay:
        outcome = await client.perform(relay.address, Call(messages=(message,), compress=True))

    assert 0 == outcome.code
    assert (b"\0",) == tuple(payload[:1] for payload in outcome.payloads)
    assert relay.up_bytes < MIB // 20


async def test_a_compressed_answer_is_small_on_the_wire(client: Client, address: str):
    if not client.compresses:
        pytest.skip(f"{client.name} has no compression")

    outcome, down_bytes = await _fetch_zeros(client, address)

    assert (0, [MIB]) == (outcome.code, [len(payload) for payload in outcome.payloads])
    assert down_bytes < MIB // 20


async def test_an_answer_is_plain_for_who_accepts_no_compression(mesh_address: str):
    """The handler asks for gzip, which grpclib does not offer. (grpcio's server sends it.)"""
    outcome, down_bytes = await _fetch_zeros(GrpclibClient(), mesh_address)

    assert (0, [MIB]) == (outcome.code, [len(payload) for payload in outcome.payloads])
    assert down_bytes >= MIB


async def _fetch_zeros(client: Client, address: str) -> tuple[Outcome, int]:
    """Ask for an answer of one MiB of zeros, compressed; return what it took on the wire."""
    call = Call(messages=(Message(response_bytes=MIB),), metadata=((COMPRESS_KEY, b"gzip"),))
    async with counting_relay(address) as relay:
        outcome = await client.perform(relay.address, call)
    return outcome, relay.down_bytes
