"""What a table of numbers costs as a message: bytes, repeated numbers, and JSON.

From an array of float32 to the bytes of a message, and back to an array, in one thread of one
process; what lies between is the same for all. The table has 1 797 rows of 64 numbers, which are
the images of scikit-learn's handwritten digits.

``python -m benchmarks.arrays`` prints a table and writes ``results/arrays.json``.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import msgpack
import numpy
import orjson
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from rich.console import Console
from rich.table import Table

from benchmarks.machine import ROOT, stamp

SHAPE = (1797, 64)
ROUNDS = 50
OUTPUT = ROOT / "benchmarks" / "results" / "arrays.json"
_FIELD = descriptor_pb2.FieldDescriptorProto


@dataclass(frozen=True)
class Row:
    """One form of the message; times are medians of one array, in milliseconds."""

    form: str
    message_bytes: int
    encode_ms: float
    decode_ms: float


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(prog="benchmarks.arrays", description=__doc__)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--output", type=Path, default=OUTPUT)
    options = parser.parse_args(arguments)
    array = numpy.random.default_rng(1).random(SHAPE, dtype=numpy.float32)
    rows = [_measured(*form, array, options.rounds) for form in _forms()]
    found = {"machine": stamp(), "shape": SHAPE, "rows": [asdict(row) for row in rows]}
    options.output.write_text(f"{json.dumps(found, indent=1)}\n", encoding="utf-8")
    table = Table("form", "message", "to bytes", "to an array")
    for row in rows:
        size = f"{row.message_bytes / 1024:.0f} KiB"
        table.add_row(row.form, size, f"{row.encode_ms:.2f} ms", f"{row.decode_ms:.2f} ms")
    Console().print(table)
    return 0


Form = tuple[str, Callable[[Any], bytes], Callable[[bytes], Any]]


def _forms() -> Iterator[Form]:
    """Yield the name of each form, what makes its message, and what reads it."""
    table, numbers = _messages()
    yield (
        "bytes",
        lambda array: table(data=array.tobytes(), shape=array.shape).SerializeToString(),
        lambda data: _of_bytes(table.FromString(data)),
    )
    yield (
        "repeated float",
        lambda array: numbers(values=array.ravel().tolist(), shape=array.shape).SerializeToString(),
        lambda data: _of_numbers(numbers.FromString(data)),
    )
    yield (
        "lists in msgpack",
        lambda array: msgpack.packb(array.tolist()),
        lambda data: numpy.array(msgpack.unpackb(data), dtype=numpy.float32),
    )
    yield (
        "lists in JSON",
        lambda array: orjson.dumps(array.tolist()),
        lambda data: numpy.array(orjson.loads(data), dtype=numpy.float32),
    )


def _of_bytes(message: Any) -> Any:
    return numpy.frombuffer(message.data, dtype=numpy.float32).reshape(message.shape)


def _of_numbers(message: Any) -> Any:
    return numpy.array(message.values, dtype=numpy.float32).reshape(message.shape)


def _messages() -> tuple[Any, Any]:
    """Return the classes of the two messages, which need no ``.proto`` of their own here."""
    file = descriptor_pb2.FileDescriptorProto(name="arrays.proto", package="arrays")
    file.syntax = "proto3"
    for name, field, kind, label in (
        ("Table", "data", _FIELD.TYPE_BYTES, _FIELD.LABEL_OPTIONAL),
        ("Numbers", "values", _FIELD.TYPE_FLOAT, _FIELD.LABEL_REPEATED),
    ):
        message = file.message_type.add(name=name)
        message.field.add(name=field, number=1, type=kind, label=label)
        message.field.add(
            name="shape", number=2, type=_FIELD.TYPE_INT64, label=_FIELD.LABEL_REPEATED
        )
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    found = [pool.FindMessageTypeByName(f"arrays.{name}") for name in ("Table", "Numbers")]
    table, numbers = map(message_factory.GetMessageClass, found)
    return table, numbers


def _measured(
    form: str,
    encode: Callable[[Any], bytes],
    decode: Callable[[bytes], Any],
    array: Any,
    rounds: int,
) -> Row:
    data = encode(array)
    assert numpy.array_equal(array, decode(data)), form
    return Row(
        form,
        len(data),
        encode_ms=_median_ms(lambda: encode(array), rounds),
        decode_ms=_median_ms(lambda: decode(data), rounds),
    )


def _median_ms(step: Callable[[], object], rounds: int) -> float:
    times = []
    for _ in range(rounds):
        # Of the processor, since other programs may run beside it.
        begun = time.process_time()
        step()
        times.append(time.process_time() - begun)
    return round(statistics.median(times) * 1e3, 4)


if __name__ == "__main__":
    sys.exit(main())
