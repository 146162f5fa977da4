"""Serves the digits on this machine and sends it the 360 images that its model never saw.

``make run`` runs it; with ``--serve`` (``make serve``) the mesh stays until Ctrl-C.
Exit code: 0; 1 when fewer than 95 % of the labels are right or a replica answered nothing.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import tempfile
import threading
import time
from collections.abc import Collection

import grpc

import pyserve
from services.digits import dataset, digits_pb2_grpc
from services.digits.rounds import Answer, Summary, send, summarise
from services.digits.service import app

_ACCURACY_MIN = 0.95
_WARMUP_ROUNDS = 1
_LOOK_INTERVAL_S = 5.0

_HOW_TO_CALL = """
The digits are served at {address}. From another terminal:

  .venv/bin/pyserve status
  .venv/bin/pyserve call services.digits.Digits/Classify pixels=@services/digits/seven.bin

From Python, with the generated stub:

  import grpc
  from services.digits import dataset, digits_pb2, digits_pb2_grpc

  images = dataset.load().held_out.images
  stub = digits_pb2_grpc.DigitsStub(grpc.insecure_channel("{address}"))
  print(stub.Classify(digits_pb2.ClassifyRequest(pixels=images[0].tobytes())).label)

Ctrl-C ends it."""


def main(arguments: list[str] | None = None) -> int:
    """Run the demonstration and return its exit code."""
    options = _parser().parse_args(arguments)
    return _serve() if options.serve else _demonstrate(options.rounds, options.concurrency)


def _demonstrate(rounds: int, concurrency: int) -> int:
    with tempfile.TemporaryDirectory(prefix="pyserve-digits-") as home:
        # A mesh of its own: one that runs on this machine already is left alone.
        os.environ.pop("PYSERVE_CONTROLLER", None)
        os.environ["PYSERVE_HOME"] = home
        return _run_and_judge(rounds, concurrency)


def _run_and_judge(rounds: int, concurrency: int) -> int:
    part = dataset.load().held_out
    try:
        pyserve.start(address="127.0.0.1:0")
        pyserve.run(app)
        address = pyserve.status().addresses[0]
        replicas = _replica_ids()
        print(f"sending {len(part.labels)} images {rounds} times to {address} ...", flush=True)
        answers, elapsed_s = asyncio.run(
            _measure(address, part, rounds=rounds, concurrency=concurrency)
        )
    finally:
        pyserve.shutdown()
    summary = summarise(answers, elapsed_s)
    _print(summary, replicas)
    problems = find_problems(summary, replicas)
    for problem in problems:
        print(f"FAILED: {problem}", file=sys.stderr)
    return 1 if problems else 0


def find_problems(summary: Summary, replicas: Collection[str]) -> list[str]:
    """Return what the demonstration must not let pass, in words."""
    problems = []
    if summary.accuracy < _ACCURACY_MIN:
        problems.append(f"accuracy {summary.accuracy:.2%} is below {_ACCURACY_MIN:.0%}")
    problems += [
        f"replica {replica} answered nothing"
        for replica in sorted(replicas)
        if replica not in summary.calls_of_replica
    ]
    return problems


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m services.digits.demo", description=__doc__)
    parser.add_argument("--serve", action="store_true", help="leave the mesh running")
    parser.add_argument("--rounds", type=int, default=10, help="how often each image is sent")
    parser.add_argument("--concurrency", type=int, default=64, help="calls in flight")
    return parser


def _serve() -> int:
    try:
        pyserve.run(app)
    except pyserve.PyserveError as error:
        print(f"the mesh cannot be started: {error}", file=sys.stderr)
        return 1
    address = pyserve.status().addresses[0]
    print(_HOW_TO_CALL.format(address=address), flush=True)
    forever = threading.Event()
    try:
        while not forever.wait(_LOOK_INTERVAL_S):
            pyserve.status()  # Raises when somebody else has ended the mesh.
    except KeyboardInterrupt:
        pyserve.shutdown()
    return 0


def _replica_ids() -> list[str]:
    deployments = pyserve.status().applications["default"].deployments
    return [replica.replica_id for replica in deployments["Digits"].replicas]


async def _measure(
    address: str, part: dataset.Part, *, rounds: int, concurrency: int
) -> tuple[list[Answer], float]:
    async with grpc.aio.insecure_channel(address) as channel:
        stub = digits_pb2_grpc.DigitsStub(channel)
        await send(stub, part, rounds=_WARMUP_ROUNDS, concurrency=concurrency)
        begun_s = time.perf_counter()
        answers = await send(stub, part, rounds=rounds, concurrency=concurrency)
        return answers, time.perf_counter() - begun_s


def _print(summary: Summary, replicas: Collection[str]) -> None:
    print(f"  accuracy         {summary.accuracy:.2%} of {summary.calls} answers")
    print(f"  requests/s       {summary.calls_per_s:,.0f} (one Python client)")
    print(f"  latency          p50 {summary.p50_ms:.2f} ms, p99 {summary.p99_ms:.2f} ms")
    print(f"  mean batch size  {summary.batch_size_mean:.1f} images")
    for replica in sorted({*replicas, *summary.calls_of_replica}):
        print(f"  {replica:<16} {summary.calls_of_replica.get(replica, 0)} answers")


if __name__ == "__main__":
    sys.exit(main())
