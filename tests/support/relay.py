"""A TCP relay that shows what passes: what compression and flow control do on the wire."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass

_CHUNK_BYTES = 64 * 1024

# Is given every piece of one direction, before it is passed on.
Tap = Callable[[bytes], object]


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
    counts = Relay()

    def up(data: bytes) -> None:
        counts.up_bytes += len(data)

    def down(data: bytes) -> None:
        counts.down_bytes += len(data)

    async with relay(target, lambda: (up, down)) as counts.address:
        yield counts


@contextlib.asynccontextmanager
async def relay(target: str, taps: Callable[[], tuple[Tap, Tap]]) -> AsyncIterator[str]:
    """Listen on a free port, pass every connection on to ``target``, and yield the address.

    Args:
        target: "host:port".
        taps: Called for each connection; returns who sees what goes up, and what comes down.
    """
    host, _, port = target.rpartition(":")
    tasks: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        upstream_reader, upstream_writer = await asyncio.open_connection(host, int(port))
        up, down = taps()
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(_pump(reader, upstream_writer, up))
                group.create_task(_pump(upstream_reader, writer, down))
        except asyncio.CancelledError:
            pass  # The relay closes; a stream's callback would log the cancellation.
        finally:
            upstream_writer.close()
            writer.close()
            tasks.discard(task)

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, tap: Tap) -> None:
    with contextlib.suppress(ConnectionError):
        while data := await reader.read(_CHUNK_BYTES):
            tap(data)  # Before the server can ask.
            writer.write(data)
            await writer.drain()
        if writer.can_write_eof():
            writer.write_eof()
