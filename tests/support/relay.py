"""A TCP relay that counts what passes: shows what compression and flow control do on the wire."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass

_CHUNK_BYTES = 64 * 1024


@dataclass
class Relay:
    """Counts the bytes of all connections so far.

    Attributes:
        address: Where it listens, "host:port".
        up_bytes: Bytes from clients to the server.
        down_bytes: Bytes from the server to clients.
    """

    address: str = ""
    up_bytes: int = 0
    down_bytes: int = 0


@contextlib.asynccontextmanager
async def counting_relay(target: str) -> AsyncIterator[Relay]:
    """Listen on a free port and pass every connection on to ``target`` ("host:port")."""
    relay = Relay()
    host, _, port = target.rpartition(":")
    tasks: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        upstream_reader, upstream_writer = await asyncio.open_connection(host, int(port))
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(_pump(reader, upstream_writer, relay, "up_bytes"))
                group.create_task(_pump(upstream_reader, writer, relay, "down_bytes"))
        except asyncio.CancelledError:
            pass  # The relay closes; a stream's callback would log the cancellation.
        finally:
            upstream_writer.close()
            writer.close()
            tasks.discard(task)

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    relay.address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield relay
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _pump(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, relay: Relay, counter: str
) -> None:
    with contextlib.suppress(ConnectionError):
        while data := await reader.read(_CHUNK_BYTES):
            setattr(relay, counter, getattr(relay, counter) + len(data))
            writer.write(data)
            await writer.drain()
        if writer.can_write_eof():
            writer.write_eof()
