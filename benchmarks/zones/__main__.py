"""``make bench NAME=zones``: three hosts in two zones, 2 ms apart, with tiers and without.

Each host is a network namespace with an ingress, whose clients make Poisson arrivals at half of
what the replicas of their zone can do. Measured in turns, with preference for near replicas and
without it:

- which share of the calls stays in its zone;
- p99 of the zone that loses half of its replicas by SIGKILL, from that moment on.

Exit code: 0 when the bars hold, 1 when one is missed or more calls were lost than killed replicas
can have had, 2 where there can be no network namespaces.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.comparison import Spread
from benchmarks.generator import drive, find_generator
from benchmarks.machine import ROOT, stamp
from benchmarks.zones.application import PLACES, WORK_S
from benchmarks.zones.journals import calls, share_that_stays
from benchmarks.zones.mesh import INGRESS_PORT, Mesh, running
from benchmarks.zones.network import Host, missing, network
from services.echo import echo_pb2

_RESULTS = ROOT / "benchmarks" / "results" / "zones.json"
ZONES = {"east": ("east-1", "east-2"), "west": ("west-1",)}
REPLICAS = {"east-1": 2, "east-2": 2, "west-1": 4}
# Its replicas are half of the zone's.
_LOST = "east-2"
_ONE_WAY_MS = 1.0
_LOAD = 0.5
_WARMUP_S = 1.0
_MARGIN_S = 30.0
_SIDES: Mapping[str, Mapping[str, str]] = {
    "tiers": {},
    "none": {"PYSERVE_PREFER_LOCAL_ZONE": "0", "PYSERVE_INGRESS_PREFER_LOCAL_NODE": "0"},
}
# Issue 22's.
STAYS_MIN = 0.95
P99_RATIO_MAX = 1.5


@dataclass(frozen=True)
class Turn:
    """What one mesh did.

    Attributes:
        stays: Share of the calls that were answered in their zone.
        p99_ms: Before the loss, of all hosts; the worst one.
        p99_after_loss_ms: Of the zone that lost replicas, from the loss on; the worst host.
        failed: Calls without the right answer; those that killed replicas had, or were sent.
    """

    stays: float
    p99_ms: float
    p99_after_loss_ms: float
    failed: int


def turn(mesh: Mesh, seconds: float) -> Turn:
    """Measure a mesh, then again while it loses replicas."""
    begin_ns = time.monotonic_ns()
    calm = _drive(mesh, seconds)
    counted = calls(mesh.journals, begin_ns, time.monotonic_ns())
    hit = _drive(mesh, seconds, lost=_LOST)
    return Turn(
        stays=share_that_stays(counted),
        p99_ms=max(_p99_ms(each) for each in calm.values()),
        p99_after_loss_ms=max(_p99_ms(hit[name]) for name in ZONES["east"]),
        failed=sum(_failed(each) for part in (calm, hit) for each in part.values()),
    )


def _drive(mesh: Mesh, seconds: float, lost: str = "") -> dict[str, Mapping[str, object]]:
    """Let clients of all hosts call at once, and kill the replicas of one as that begins."""
    all_measure = threading.Barrier(len(mesh.hosts), lambda: _kill(mesh.replicas.get(lost, ())))

    def on_moment(moment: str) -> None:
        if moment == "measuring":
            all_measure.wait(_MARGIN_S)

    def call(host: Host) -> Mapping[str, object]:
        return drive(
            find_generator(),
            _load(host),
            seconds=seconds,
            warmup_s=_WARMUP_S,
            on_moment=on_moment,
            prefix=host.command([]),
        )

    names = [each.name for each in mesh.hosts]
    with ThreadPoolExecutor(len(names)) as pool:
        return dict(zip(names, pool.map(call, mesh.hosts), strict=True))


def _kill(replicas: Sequence[subprocess.Popen[bytes]]) -> None:
    for replica in replicas:
        replica.kill()
        replica.wait()


def _load(host: Host) -> Sequence[str]:
    request = echo_pb2.EchoRequest(payload=host.zone.encode()).SerializeToString()
    rate = _LOAD * REPLICAS[host.name] * PLACES / WORK_S
    return (
        *("--target", f"127.0.0.1:{INGRESS_PORT}", "--path", "/services.echo.Echo/Echo"),
        *("--request-hex", request.hex(), "--expect-echo"),
        *("--rate", str(rate), "--connections", "2", "--timeout-s", "5"),
    )


def _p99_ms(report: Mapping[str, object]) -> float:
    latency_ms = report["latency_ms"]
    assert isinstance(latency_ms, Mapping)
    return float(latency_ms["p99"])


def _failed(report: Mapping[str, object]) -> int:
    errors = report["errors"]
    assert isinstance(errors, Mapping)
    return sum(int(each) for each in errors.values())


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, write the results, and return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.zones", description=__doc__)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=8.0, help="of each of a turn's two parts")
    parser.add_argument("--output", type=Path, default=_RESULTS)
    options = parser.parse_args(arguments)
    if reason := missing():
        print(f"SKIPPED: {reason}", file=sys.stderr)
        return 2
    begun = stamp()
    turns: dict[str, list[Turn]] = {side: [] for side in _SIDES}
    with network(ZONES, _ONE_WAY_MS) as hosts:
        for number in range(options.turns):
            for side, variables in _SIDES.items():
                with running(hosts, REPLICAS, variables) as mesh:
                    turns[side].append(turn(mesh, options.seconds))
                print(f"turn {number + 1}, {side}: {turns[side][-1]}", flush=True)
    verdict = judged(turns)
    options.output.write_text(
        json.dumps(
            {
                "machine": begun,
                "seconds": options.seconds,
                "turns": {side: [asdict(each) for each in some] for side, some in turns.items()},
                **verdict,
            },
            indent=1,
        )
        + "\n"
    )
    print(json.dumps(verdict, indent=1))
    return 0 if verdict["met"] else 1


def judged(turns: Mapping[str, Sequence[Turn]]) -> dict[str, object]:
    """Compare the two sides, turn by turn."""
    ratios = [
        ours.p99_after_loss_ms / other.p99_after_loss_ms
        for ours, other in zip(turns["tiers"], turns["none"], strict=True)
    ]
    stays = Spread.of([each.stays for each in turns["tiers"]])
    ratio = Spread.of(ratios)
    # What had begun in the killed replicas, and as much on the way to them: nobody may repeat it.
    lost_max = 2 * REPLICAS[_LOST] * PLACES
    no_more_lost = all(each.failed <= lost_max for some in turns.values() for each in some)
    met = stays.median >= STAYS_MIN and ratio.median <= P99_RATIO_MAX and no_more_lost
    return {
        "stays": asdict(stays),
        "stays_min": STAYS_MIN,
        "p99_after_loss_ratio": asdict(ratio),
        "p99_after_loss_ratio_max": P99_RATIO_MAX,
        "lost_max": lost_max,
        "met": met,
    }


if __name__ == "__main__":
    sys.exit(main())
