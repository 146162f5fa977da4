"""What a payload costs by codec and size: in the message, and by reference.

Two processes on one machine, each on a CPU of its own: one has an array, the other gets it and
reads one number of each page. In the message: encoded, sent over the Unix socket of a
``pyserve.aio`` server, decoded. By reference: encoded, written into sealed memory, a descriptor is
sent, the memory is mapped, decoded, and given back. Both ways start with the array and end with
the array.

``python -m benchmarks.payloads`` prints a table and writes ``results/payloads.json``.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import grpc
import numpy
import uvloop
from rich.console import Console
from rich.table import Table

from benchmarks.machine import ROOT, stamp
from benchmarks.processes import CpuSets, affinity
from pyserve import aio
from pyserve.references import Descriptor, References
from pyserve.serializers import codec, join, size_bytes

KIB, MIB = 2**10, 2**20
SIZES = (KIB, 16 * KIB, 64 * KIB, 256 * KIB, MIB, 4 * MIB, 10 * MIB, 100 * MIB)
CODECS = ("raw", "proto", "json", "msgpack", "pickle", "cloudpickle")
# Text of 13 million numbers says nothing new and takes gigabytes.
JSON_BYTES_MAX = 10 * MIB
OUTPUT = ROOT / "benchmarks" / "results" / "payloads.json"

_PATH = "/benchmarks.Payloads/Make"
_TOKEN = b"a token for two processes of one benchmark"
_NUMBERS_PER_PAGE = 4096 // 8
_UNLIMITED = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
_REPEATS_MIN = 5
_REPEATS_MAX = 2000

Step = Callable[[], Awaitable[object]]


@dataclass(frozen=True)
class Row:
    """Medians of one codec at one size, in microseconds.

    Attributes:
        codec: Its name.
        array_bytes: Size of the array.
        body_bytes: Size of its encoding.
        encode_us, decode_us: In one process, without any transport.
        inline_us: From the call to the array, in the message.
        reference_us: The same, by reference.
    """

    codec: str
    array_bytes: int
    body_bytes: int
    encode_us: float
    decode_us: float
    inline_us: float
    reference_us: float

    def as_json(self) -> dict[str, object]:
        """Return the fields, and the rates that follow from them."""
        megabytes = self.array_bytes / 1e6
        return {
            **asdict(self),
            "codec_mb_per_s": megabytes / (self.encode_us + self.decode_us) * 1e6,
            "inline_mb_per_s": megabytes / self.inline_us * 1e6,
            "reference_mb_per_s": megabytes / self.reference_us * 1e6,
            "reference_to_inline": self.reference_us / self.inline_us,
        }


def value_of(name: str, array: Any) -> object:
    """Return what a codec carries of an array: itself, or its bytes."""
    return array.tobytes() if name == "proto" else array


def array_of(value: Any) -> Any:
    """Return the array that arrived."""
    if isinstance(value, bytes | memoryview):
        return numpy.frombuffer(value, "f8")
    return value


def touch(value: Any) -> float:
    """Read one number of each page, as any user of the array would at least."""
    array = array_of(value)
    return float(sum(array[::_NUMBERS_PER_PAGE]))


# --- the producer -------------------------------------------------------------------------------


async def serve(folder: Path) -> None:
    """Answer until standard input ends."""
    references = References(node="here", token=_TOKEN, run_dir=folder)
    arrays: dict[int, Any] = {}

    async def make(request: bytes, _context: object) -> object:
        name, size, by_reference = json.loads(request)
        array = arrays.get(size)
        if array is None:
            arrays.clear()
            array = arrays[size] = numpy.arange(size // 8, dtype="f8")
        parts = codec(name).encode(value_of(name, array))
        if not by_reference:
            return parts
        return json.dumps(references.hold(parts, name).to_wire()).encode()

    server = aio.server(options=_UNLIMITED)
    handler: Any = grpc.unary_unary_rpc_method_handler
    server.add_registered_method_handlers(
        "benchmarks.Payloads", {"Make": handler(make, response_serializer=aio.payload)}
    )
    server.add_insecure_port(f"unix:{folder / 'server.sock'}")
    await server.start()
    print("ready", flush=True)
    await asyncio.to_thread(sys.stdin.read)
    await server.stop(1.0)
    references.close()


@contextmanager
def producer(folder: Path, cpus: frozenset[int]) -> Iterator[None]:
    """Run ``serve`` in a process of its own."""
    with affinity(cpus):
        process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.payloads", "--serve", str(folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=ROOT,
        )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        if process.stdout.readline() != b"ready\n":
            raise RuntimeError("the producer did not start; its output above says why")
        yield
    finally:
        process.stdin.close()
        process.wait(30)
        process.stdout.close()


# --- the consumer -------------------------------------------------------------------------------


async def measure(
    folder: Path, sizes: Sequence[int], codecs: Sequence[str], seconds: float, console: Console
) -> list[Row]:
    """Measure every codec at every size."""
    references = References(node="here", token=_TOKEN, run_dir=folder)
    rows = []
    async with aio.insecure_channel(f"unix:{folder / 'server.sock'}", _UNLIMITED) as channel:
        call: Any = channel.unary_unary(_PATH)
        for size in sizes:
            for name in codecs:
                if name == "json" and size > JSON_BYTES_MAX:
                    continue
                rows.append(await _row(name, size, call, references, seconds))
                console.print(f"{name} {_size(size)}: done", highlight=False)
    references.close()
    return rows


async def _row(name: str, size: int, call: Any, references: References, seconds: float) -> Row:
    found = codec(name)

    async def inline() -> None:
        body = await call(json.dumps([name, size, False]).encode())
        touch(found.decode(body))

    async def by_reference() -> None:
        wire = json.loads(await call(json.dumps([name, size, True]).encode()))
        descriptor = Descriptor.from_wire(wire)
        touch(found.decode(await references.fetch(descriptor)))
        references.release(descriptor)

    # In turns, so that a drift of the machine favours neither.
    inline_us, reference_us = await _medians([inline, by_reference], seconds)
    array = numpy.arange(size // 8, dtype="f8")
    value = value_of(name, array)
    body = join(found.encode(value))

    async def encode() -> None:
        found.encode(value)

    async def decode() -> None:
        found.decode(body)

    encode_us, decode_us = await _medians([encode, decode], seconds / 4)
    return Row(name, size, size_bytes([body]), encode_us, decode_us, inline_us, reference_us)


async def _medians(steps: Sequence[Step], seconds: float) -> list[float]:
    """Return the median time of each step in microseconds; they are run in turns."""
    for step in steps:
        await step()
    taken: list[list[float]] = [[] for _ in steps]
    end = time.perf_counter() + seconds
    while len(taken[0]) < _REPEATS_MIN or (
        time.perf_counter() < end and len(taken[0]) < _REPEATS_MAX
    ):
        for step, times in zip(steps, taken, strict=True):
            begun = time.perf_counter()
            await step()
            times.append((time.perf_counter() - begun) * 1e6)
    return [statistics.median(times) for times in taken]


# --- the report ---------------------------------------------------------------------------------


def crossovers(rows: Sequence[Row]) -> dict[str, int | None]:
    """Return by codec the size from which on a reference is faster at every measured size."""
    found: dict[str, int | None] = {}
    for name in dict.fromkeys(row.codec for row in rows):
        best = None
        mine = sorted((r for r in rows if r.codec == name), key=lambda r: -r.array_bytes)
        for row in mine:
            if row.reference_us >= row.inline_us:
                break
            best = row.array_bytes
        found[name] = best
    return found


def _size(size: int) -> str:
    return f"{size // MIB} MiB" if size >= MIB else f"{size // KIB} KiB"


def _print(rows: Sequence[Row], console: Console) -> None:
    table = Table(title="medians in µs", title_justify="left")
    for heading in ("codec", "array", "body", "encode", "decode", "MB/s", "inline", "reference"):
        table.add_column(heading, justify="left" if heading == "codec" else "right")
    table.add_column("reference / inline", justify="right")
    for row in rows:
        fields = row.as_json()
        table.add_row(
            row.codec,
            _size(row.array_bytes),
            f"{row.body_bytes:,}",
            f"{row.encode_us:,.1f}",
            f"{row.decode_us:,.1f}",
            f"{fields['codec_mb_per_s']:,.0f}",
            f"{row.inline_us:,.0f}",
            f"{row.reference_us:,.0f}",
            f"{fields['reference_to_inline']:.2f}",
        )
    console.print(table)
    for name, size in crossovers(rows).items():
        text = "at no measured size" if size is None else f"from {_size(size)} on"
        console.print(f"{name}: a reference is faster {text}", highlight=False)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, write the results."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.payloads", description=__doc__)
    parser.add_argument("--serve", type=Path, help="be the producer, with sockets in this folder")
    parser.add_argument("--seconds", type=float, default=1.5, help="for each codec and size")
    parser.add_argument("--only", action="append", choices=CODECS)
    parser.add_argument("--largest", type=int, default=max(SIZES), help="bytes")
    parser.add_argument("--output", type=Path, default=OUTPUT)
    options = parser.parse_args(arguments)
    if options.serve is not None:
        uvloop.run(serve(options.serve))
        return 0
    cpus = CpuSets.here()
    console = Console(width=None if sys.stdout.isatty() else 120)
    begun = stamp()
    sizes = [size for size in SIZES if size <= options.largest]
    with tempfile.TemporaryDirectory(prefix="pyserve-bench-") as name:
        folder = Path(name)
        with producer(folder, cpus.server), affinity(cpus.generator):
            rows = uvloop.run(
                measure(folder, sizes, options.only or CODECS, options.seconds, console)
            )
    document = {
        "machine": begun,
        "seconds": options.seconds,
        "cpus": {"producer": sorted(cpus.server), "consumer": sorted(cpus.generator)},
        "rows": [row.as_json() for row in rows],
        "reference_is_faster_from_bytes": crossovers(rows),
    }
    options.output.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    _print(rows, console)
    console.print(f"results: {options.output}", highlight=False)
    return 0


if __name__ == "__main__":
    sys.exit(main())
