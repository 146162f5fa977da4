"""Compression in both directions; what is on the wire is seen through a counting relay."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import grpc
import pytest

from tests.contract.aio.sides import (
    PYSERVE,
    SERVICE,
    Network,
    Stub,
    echo,
    responses,
    unary,
    within,
)

COMPRESSIBLE = b"a" * 200_000
# Far above the compressed size with its overhead, far below the plain one.
PLAIN_BYTES_MIN = 100_000


@dataclass
class Counts:
    """Bytes that went through a relay."""

    to_server: int = 0
    to_client: int = 0


@asynccontextmanager
async def relay(address: str) -> AsyncIterator[tuple[str, Counts]]:
    """Forward connections to ``address`` and count what passes."""
    host, _, port = address.rpartition(":")
    counts = Counts()
    connections: list[asyncio.Task[None]] = []
    writers: list[asyncio.StreamWriter] = []

    async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, name: str) -> None:
        while data := await reader.read(65536):
            setattr(counts, name, getattr(counts, name) + len(data))
            writer.write(data)
            await writer.drain()
        writer.close()

    async def on_connection(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connections.append(asyncio.current_task())  # type: ignore[arg-type]
        server_reader, server_writer = await asyncio.open_connection(host, int(port))
        writers.extend((writer, server_writer))
        await asyncio.gather(
            pump(reader, server_writer, "to_server"), pump(server_reader, writer, "to_client")
        )

    server = await asyncio.start_server(on_connection, "127.0.0.1", 0)
    relay_port = server.sockets[0].getsockname()[1]
    try:
        yield f"127.0.0.1:{relay_port}", counts
    finally:
        server.close()
        for writer in writers:
            writer.close()
        await asyncio.gather(*[writer.wait_closed() for writer in writers], return_exceptions=True)
        await within(asyncio.gather(*connections, return_exceptions=True))


async def _size(request: bytes, _context: Any) -> bytes:
    return b"%d" % len(request)


@pytest.mark.parametrize("compression", [grpc.Compression.Gzip, grpc.Compression.Deflate])
async def test_compression_of_the_call_shrinks_requests(
    network: Network, compression: grpc.Compression
) -> None:
    _, address = await network.start({"Call": unary(_size)})
    async with relay(address) as (target, counts):
        call = Stub(network.channel(target)).unary()
        assert b"200000" == await within(call(COMPRESSIBLE, compression=compression))
        assert counts.to_server < PLAIN_BYTES_MIN
        assert b"200000" == await within(call(COMPRESSIBLE))
        assert counts.to_server > PLAIN_BYTES_MIN


async def test_compression_of_the_channel_shrinks_requests(network: Network) -> None:
    _, address = await network.start({"Call": unary(_size)})
    async with relay(address) as (target, counts):
        stub = Stub(network.channel(target, compression=grpc.Compression.Gzip))
        assert b"200000" == await within(stub.unary()(COMPRESSIBLE))
        assert counts.to_server < PLAIN_BYTES_MIN


async def test_compression_of_the_server_shrinks_responses(network: Network) -> None:
    _, address = await network.start({"Call": unary(echo)}, compression=grpc.Compression.Gzip)
    async with relay(address) as (target, counts):
        stub = Stub(network.channel(target))
        assert COMPRESSIBLE == await within(stub.unary()(COMPRESSIBLE))
        assert counts.to_server > PLAIN_BYTES_MIN > counts.to_client


async def test_handler_chooses_the_compression_of_its_call(network: Network) -> None:
    async def compressed(request: bytes, context: Any) -> bytes:
        context.set_compression(grpc.Compression.Gzip)
        await context.send_initial_metadata(())
        with pytest.raises(RuntimeError):
            context.set_compression(grpc.Compression.NoCompression)
        return request

    _, address = await network.start({"Call": unary(compressed)})
    async with relay(address) as (target, counts):
        stub = Stub(network.channel(target))
        assert COMPRESSIBLE == await within(stub.unary()(COMPRESSIBLE))
        assert counts.to_client < PLAIN_BYTES_MIN


async def test_handler_compresses_a_stream_without_sending_metadata(network: Network) -> None:
    async def compressed(request: bytes, context: Any) -> AsyncIterator[bytes]:
        context.set_compression(grpc.Compression.Gzip)
        yield request
        yield request

    _, address = await network.start({"Call": responses(compressed)})
    async with relay(address) as (target, counts):
        call = network.channel(target).unary_stream(f"/{SERVICE}/Call")(COMPRESSIBLE)
        assert [COMPRESSIBLE] * 2 == [response async for response in call]
        assert counts.to_client < PLAIN_BYTES_MIN


async def test_handler_leaves_one_message_uncompressed(network: Network) -> None:
    sent = asyncio.Event()

    async def mixed(request: bytes, context: Any) -> AsyncIterator[bytes]:
        yield request
        await sent.wait()
        context.disable_next_message_compression()
        yield request
        yield request

    _, address = await network.start({"Call": responses(mixed)}, compression=grpc.Compression.Gzip)
    async with relay(address) as (target, counts):
        call = network.channel(target).unary_stream(f"/{SERVICE}/Call")(COMPRESSIBLE)
        assert COMPRESSIBLE == await within(call.read())
        assert counts.to_client < PLAIN_BYTES_MIN
        sent.set()
        assert COMPRESSIBLE == await within(call.read())
        assert COMPRESSIBLE == await within(call.read())
        assert PLAIN_BYTES_MIN < counts.to_client < 2 * len(COMPRESSIBLE)
        assert grpc.aio.EOF == await within(call.read())


async def test_unary_response_can_be_left_uncompressed(network: Network) -> None:
    async def plain(request: bytes, context: Any) -> bytes:
        context.disable_next_message_compression()
        return request

    _, address = await network.start({"Call": unary(plain)}, compression=grpc.Compression.Gzip)
    async with relay(address) as (target, counts):
        stub = Stub(network.channel(target))
        assert COMPRESSIBLE == await within(stub.unary()(COMPRESSIBLE))
        assert counts.to_client > PLAIN_BYTES_MIN


_ENABLED = "grpc.compression_enabled_algorithms_bitset"
_WITHOUT_GZIP = [0b000, 0b001, 0b011]
_WITH_GZIP = [0b100, 0b101, 0b111]


@pytest.mark.parametrize("bits", [*_WITHOUT_GZIP, *_WITH_GZIP])
async def test_default_of_a_channel_is_left_out_where_it_is_switched_off(
    network: Network, bits: int
) -> None:
    _, address = await network.start({"Call": unary(_size)})
    for chosen in (
        {"compression": grpc.Compression.Gzip, "options": [(_ENABLED, bits)]},
        {"options": [("grpc.default_compression_algorithm", 2), (_ENABLED, bits)]},
    ):
        async with relay(address) as (target, counts):
            stub = Stub(network.channel(target, **chosen))
            assert b"200000" == await within(stub.unary()(COMPRESSIBLE))
            assert (bits in _WITH_GZIP) == (counts.to_server < PLAIN_BYTES_MIN)


@pytest.mark.parametrize("bits", [*_WITHOUT_GZIP, *_WITH_GZIP])
async def test_a_call_may_ask_for_what_its_channel_switched_off(
    network: Network, bits: int
) -> None:
    _, address = await network.start({"Call": unary(_size)})
    async with relay(address) as (target, counts):
        stub = Stub(network.channel(target, options=[(_ENABLED, bits)]))
        call = stub.unary()(COMPRESSIBLE, compression=grpc.Compression.Gzip)
        assert b"200000" == await within(call)
        assert counts.to_server < PLAIN_BYTES_MIN


@pytest.mark.parametrize("bits", [*_WITHOUT_GZIP, *_WITH_GZIP])
async def test_default_of_a_server_is_left_out_where_it_is_switched_off(
    network: Network, bits: int
) -> None:
    _, address = await network.start(
        {"Call": unary(echo)}, compression=grpc.Compression.Gzip, options=[(_ENABLED, bits)]
    )
    async with relay(address) as (target, counts):
        stub = Stub(network.channel(target))
        assert COMPRESSIBLE == await within(stub.unary()(COMPRESSIBLE))
        assert (bits in _WITH_GZIP) == (counts.to_client < PLAIN_BYTES_MIN)


@pytest.mark.parametrize("bits", _WITHOUT_GZIP)
async def test_a_handler_may_ask_for_what_its_server_switched_off(
    network: Network, bits: int
) -> None:
    async def compressed(request: bytes, context: Any) -> AsyncIterator[bytes]:
        context.set_compression(grpc.Compression.Gzip)
        yield request

    _, address = await network.start({"Call": responses(compressed)}, options=[(_ENABLED, bits)])
    async with relay(address) as (target, counts):
        call = Stub(network.channel(target)).responses()(COMPRESSIBLE)
        assert [COMPRESSIBLE] == [response async for response in call]
        assert counts.to_client < PLAIN_BYTES_MIN


@pytest.mark.parametrize("bits", _WITHOUT_GZIP)
async def test_a_server_refuses_what_it_switched_off(network: Network, bits: int) -> None:
    _, address = await network.start({"Call": unary(_size)}, options=[(_ENABLED, bits)])
    stub = Stub(network.channel(address))

    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await within(stub.unary()(COMPRESSIBLE, compression=grpc.Compression.Gzip))

    assert grpc.StatusCode.UNIMPLEMENTED is caught.value.code()
    assert "Compression algorithm 'gzip' is disabled." == caught.value.details()
    # Others, and none, are welcome.
    assert b"200000" == await within(stub.unary()(COMPRESSIBLE))


@pytest.mark.parametrize("bits", _WITHOUT_GZIP)
async def test_a_channel_does_not_read_what_it_switched_off(network: Network, bits: int) -> None:
    _, address = await network.start({"Call": unary(echo)}, compression=grpc.Compression.Gzip)
    stub = Stub(network.channel(address, options=[(_ENABLED, bits)]))

    if network.server_side is PYSERVE:  # It heeds what its client accepts.
        assert COMPRESSIBLE == await within(stub.unary()(COMPRESSIBLE))
        return
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await within(stub.unary()(COMPRESSIBLE))
    assert grpc.StatusCode.INTERNAL is caught.value.code()


async def test_what_is_no_set_of_algorithms_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match=_ENABLED):
        PYSERVE.insecure_channel("127.0.0.1:1", options=[(_ENABLED, "gzip")])
