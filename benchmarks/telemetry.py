"""``make bench NAME=telemetry``: what metrics, traces and the open page cost a call.

Sides take turns under ``unary_64``; the ratio of CPU per call is taken within each turn. Two meshes
that run the same differ by some per cent for as long as they live, by where their memory came to
lie, so all are started anew for each round, and the page is open at the mesh that it is compared
with. The first turn of a round is not counted: what a first span and a first look import is paid
once. The median of the rounds gets a 95 % confidence interval by the bootstrap (Efron 1979):

- ``quiet``: no metrics shown, no traces;
- ``usual``: as a mesh starts, with metrics;
- ``traced``: one call in a hundred is traced, and its spans go to a receiver by OTLP;
- ``watched``: the same mesh while the page is open, in the form of the events that it reads;
- ``before``: an older tree with its own ``.venv``, by ``--before``. What cannot be switched off is
  counted by that.

Exit code: 0 when the bars hold, 1 when one is missed or an answer was wrong.
"""

from __future__ import annotations

import argparse
import http.client
import json
import random
import statistics
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path

import grpc
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2, trace_service_pb2_grpc

from benchmarks.comparison import Spread
from benchmarks.generator import find_generator
from benchmarks.machine import ROOT, stamp
from benchmarks.measure import Duration, Run, measure
from benchmarks.processes import CpuSets, RunningServer, affinity, running_server
from benchmarks.workloads import WORKLOADS

_RESULTS = ROOT / "benchmarks" / "results" / "telemetry.json"
_WORKLOAD = next(each for each in WORKLOADS if each.name == "unary_64")
_METRIC = "cpu_us_per_request"
_RESAMPLES = 2000
_CONNECT_TIMEOUT_S = 10.0


@dataclass(frozen=True)
class Bar:
    """What one side may cost.

    Attributes:
        side: The costly one.
        baseline: What it is compared with.
        ratio_max: Of CPU per call, as the median of all rounds.
    """

    side: str
    baseline: str
    ratio_max: float


# Issue 19's: metrics and traces together 5 %, the page 1 %.
_BARS = (Bar("traced", "quiet", 1.05), Bar("watched", "usual", 1.01))
_BAR_BEFORE = Bar("traced", "before", 1.05)


@dataclass(frozen=True)
class _Side:
    """How a mesh is started."""

    variables: Mapping[str, str] = field(default_factory=dict)
    tree: Path = ROOT


class _Sink(trace_service_pb2_grpc.TraceServiceServicer):
    """Counts spans, and forgets them."""

    def __init__(self) -> None:
        self.spans = 0

    def Export(
        self, request: trace_service_pb2.ExportTraceServiceRequest, _context: object
    ) -> trace_service_pb2.ExportTraceServiceResponse:
        scopes = [scope for group in request.resource_spans for scope in group.scope_spans]
        self.spans += sum(len(scope.spans) for scope in scopes)
        return trace_service_pb2.ExportTraceServiceResponse()


@contextmanager
def _sink() -> Iterator[tuple[_Sink, str]]:
    sink = _Sink()
    server = grpc.server(ThreadPoolExecutor(1, thread_name_prefix="otlp"))
    trace_service_pb2_grpc.add_TraceServiceServicer_to_server(sink, server)  # type: ignore[no-untyped-call]
    endpoint = f"http://127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    server.start()
    try:
        yield sink, endpoint
    finally:
        server.stop(grace=None).wait()


class _Page:
    """Reads the events that the page reads, until it is closed."""

    def __init__(self, admin: str) -> None:
        self.events = 0
        self._connection = http.client.HTTPConnection(admin, timeout=_CONNECT_TIMEOUT_S)
        self._connection.request("GET", "/api/events")
        self._answer = self._connection.getresponse()
        if self._answer.status != 200:
            raise RuntimeError(f"http://{admin}/api/events answers {self._answer.status}")
        self._thread = threading.Thread(target=self._read, name="page")
        self._thread.start()

    def _read(self) -> None:
        for line in self._answer:
            self.events += line.startswith(b"event:")

    def close(self) -> None:
        if self._connection.sock is not None:
            self._connection.sock.shutdown(2)
        self._thread.join()
        self._connection.close()


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, write the results, and return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.telemetry", description=__doc__)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--turns", type=int, default=2, help="of each round")
    parser.add_argument("--seconds", type=float, default=2.0, help="of one measured run")
    parser.add_argument("--before", type=Path, help="an older tree that has been built")
    parser.add_argument("--output", type=Path, default=_RESULTS)
    options = parser.parse_args(arguments)
    begun = stamp()
    bars = (*_BARS, _BAR_BEFORE) if options.before else _BARS
    duration = Duration(options.seconds, 0.5)
    rounds, seen = _measure(options.before, options.rounds, options.turns, duration)
    verdicts = [_verdict(bar, rounds) for bar in bars]
    runs = {side: [run for each in rounds for run in each[side]] for side in rounds[0]}
    spreads = {
        side: asdict(Spread.of([run.metrics[_METRIC] for run in of_side]))
        for side, of_side in runs.items()
    }
    wrong = sum(sum(run.errors.values()) for of_side in runs.values() for run in of_side)
    document = {
        "machine": begun,
        "rounds": options.rounds,
        "turns": options.turns,
        "seconds": options.seconds,
        **seen,
        "wrong": wrong,
        _METRIC: spreads,
        "bars": verdicts,
    }
    options.output.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    return 0 if not wrong and all(verdict["met"] for verdict in verdicts) else 1


# The runs of each side.
_Round = Mapping[str, Sequence[Run]]


def _measure(
    before: Path | None, rounds: int, turns: int, duration: Duration
) -> tuple[list[_Round], dict[str, int]]:
    """Run all rounds; also say how many spans and events there were."""
    cpus = CpuSets.here()
    found: list[_Round] = []
    events = 0
    with affinity(cpus.generator), _sink() as (sink, endpoint):
        for _ in range(rounds):
            with ExitStack() as stack:
                meshes = {
                    name: stack.enter_context(
                        running_server(
                            "pyserve", cpus.server, tree=side.tree, variables=side.variables
                        )
                    )
                    for name, side in _sides(before, endpoint).items()
                }
                # One mesh is on two sides.
                meshes["watched"] = meshes["usual"]
                runs, events_seen = _measure_round(meshes, turns, duration)
                found.append(runs)
                events += events_seen
    if not sink.spans or events < rounds * turns:
        text = f"{sink.spans} spans and {events} events: nobody traced, or nobody looked"
        raise RuntimeError(text)
    return found, {"spans": sink.spans, "events": events}


def _measure_round(
    meshes: Mapping[str, RunningServer], turns: int, duration: Duration
) -> tuple[_Round, int]:
    program = find_generator()
    runs: dict[str, list[Run]] = {name: [] for name in meshes}
    events = 0
    for turn in range(turns + 1):
        for name in list(meshes)[:: 1 if turn % 2 == 0 else -1]:
            page = _Page(meshes[name].admin) if name == "watched" else None
            try:
                runs[name].append(measure(program, meshes[name], _WORKLOAD, duration))
            finally:
                if page:
                    page.close()
                    events += page.events
    return {name: each[1:] for name, each in runs.items()}, events


def _sides(before: Path | None, endpoint: str) -> dict[str, _Side]:
    usual = {"PYSERVE_METRICS_PORT": "0"}
    traced = {
        "PYSERVE_TRACING_ENABLED": "1",
        "PYSERVE_TRACING_SAMPLING_RATIO": "0.01",
        "OTEL_EXPORTER_OTLP_ENDPOINT": endpoint,
    }
    sides = {
        "quiet": _Side({"PYSERVE_METRICS_PORT": "off", "PYSERVE_TRACING_ENABLED": "0"}),
        "usual": _Side(usual),
        "traced": _Side({**usual, **traced}),
    }
    if before:
        sides["before"] = _Side(tree=before.resolve())
    return sides


def _verdict(bar: Bar, rounds: Sequence[_Round]) -> dict[str, object]:
    ratios = [_ratio(bar, runs) for runs in rounds]
    low, high = confidence(ratios)
    spread = Spread.of(ratios)
    print(
        f"{bar.side} / {bar.baseline}: {spread.median:.3f} "
        f"(95 %: {low:.3f} to {high:.3f}; at most {bar.ratio_max})"
    )
    interval = {"low": low, "high": high}
    met = spread.median <= bar.ratio_max
    return {**asdict(bar), "ratio": asdict(spread), "interval": interval, "met": met}


def _ratio(bar: Bar, runs: _Round) -> float:
    pairs = zip(runs[bar.side], runs[bar.baseline], strict=True)
    return statistics.median(side.metrics[_METRIC] / base.metrics[_METRIC] for side, base in pairs)


def confidence(values: Sequence[float]) -> tuple[float, float]:
    """Return the bootstrap's 95 % interval of the median; the same for the same values."""
    draws = random.Random(0)
    medians = sorted(
        statistics.median(draws.choices(values, k=len(values))) for _ in range(_RESAMPLES)
    )
    return medians[round(_RESAMPLES * 0.025)], medians[round(_RESAMPLES * 0.975) - 1]


if __name__ == "__main__":
    sys.exit(main())
