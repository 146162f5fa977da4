"""``make bench NAME=first-hour``: the same small service with pyserve and with others.

These are LitServe, BentoML, Ray Serve, mosec and FastAPI. Each is installed into an environment of
its own, started in a terminal as its documentation says, asked, edited, and misused in five ways.
What the terminal showed goes into the results, and the tables of docs/guide/choosing.md are made
from them. Nothing but loopback is asked.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from benchmarks.comparison import Spread
from benchmarks.first_hour.environments import (
    InstallError,
    count_lines,
    find_type_errors,
    install,
    installed,
)
from benchmarks.first_hour.mistakes import mistakes_in_commands
from benchmarks.first_hour.systems import SYSTEMS, System
from benchmarks.first_hour.tables import PAGE, with_tables
from benchmarks.first_hour.visits import first_answer_s, reload, visit
from benchmarks.machine import ROOT, stamp

RESULTS = ROOT / "benchmarks" / "results" / "first_hour.json"
_EDITS = 5


def main(arguments: Sequence[str] | None = None) -> int:
    """Compare, write results and page, and return the exit code."""
    names = [system.name for system in SYSTEMS]
    parser = argparse.ArgumentParser(prog="python -m benchmarks.first_hour", description=__doc__)
    parser.add_argument("--only", nargs="+", choices=names, default=names, help="keep the others")
    parser.add_argument("--starts", type=int, default=9, help="of each, in turns")
    parser.add_argument("--environments", type=Path, default=ROOT / "target" / "first_hour")
    parser.add_argument("--keep", action="store_true", help="environments that are there")
    parser.add_argument("--wheel", type=Path, help="of pyserve; by default the one in dist")
    parser.add_argument("--output", type=Path, default=RESULTS)
    options = parser.parse_args(arguments)
    begun = stamp()
    wheel = options.wheel or next((ROOT / "dist").glob("*.whl"), None)
    if wheel is None:
        parser.error("there is no wheel in dist: run make wheel, or name one by --wheel")
    report: dict[str, dict[str, object]] = {}
    if options.output.exists():
        report = json.loads(options.output.read_text(encoding="utf-8"))["systems"]
    systems = [system for system in SYSTEMS if system.name in options.only]
    environments = options.environments.resolve()
    report |= _compare(systems, environments, wheel.resolve(), options)
    document = {"machine": begun, "starts": options.starts, "systems": report}
    options.output.write_text(_as_text(document, environments), encoding="utf-8")
    if options.output == RESULTS:
        page = PAGE.read_text(encoding="utf-8")
        PAGE.write_text(with_tables(page, report), encoding="utf-8")
    return 0


def _as_text(document: object, environments: Path) -> str:
    """Return it as JSON; where things happen to be on this machine is left out."""
    text = json.dumps(document, indent=1) + "\n"
    places = {environments: "environments", ROOT: "tree", Path(sys.base_prefix): "python"}
    for place, name in places.items():
        text = text.replace(str(place), f"/{name}")
    return text


def _compare(
    systems: Sequence[System], environments: Path, wheel: Path, options: argparse.Namespace
) -> dict[str, dict[str, object]]:
    report: dict[str, dict[str, object]] = {}
    for system in systems:
        requirement = system.requirement or str(wheel)
        environment = environments / system.name
        print(f"installing {system.title} ...", flush=True)
        try:
            if not (options.keep and environment.exists()):
                install(environment, requirement)
        except InstallError as error:
            report[system.name] = {"unavailable": f"cannot be installed: {error}"}
            continue
        report[system.name] = installed(environment, requirement)
    there = [system for system in systems if "unavailable" not in report[system.name]]
    times_s = _first_answers(there, environments, options.starts)
    for system in there:
        print(f"looking at {system.title} ...", flush=True)
        spread = Spread.of(times_s[system.name])
        report[system.name] |= {
            "first_answer_s": asdict(spread),
            "starts_s": times_s[system.name],
            **_looked_at(system, environments / system.name, spread.most),
        }
    return report


def _first_answers(
    systems: Sequence[System], environments: Path, starts: int
) -> dict[str, list[float]]:
    """Start each in turns; who is first changes with every turn."""
    times_s: dict[str, list[float]] = {system.name: [] for system in systems}
    for turn in range(starts):
        for system in systems if turn % 2 == 0 else reversed(systems):
            took_s = first_answer_s(system, environments / system.name)
            times_s[system.name].append(round(took_s, 3))
            print(f"{system.title}: {took_s:.2f} s", flush=True)
    return times_s


def _looked_at(system: System, environment: Path, start_s: float) -> dict[str, object]:
    """Return what has to be looked at once."""
    seen = visit(system, environment, start_s)
    verdicts = {**mistakes_in_commands(system, environment), **seen.mistakes}
    return {
        "lines": asdict(count_lines(system.program)),
        "terminal": {
            "shown": seen.shown,
            "address": seen.address,
            "shown_then": seen.shown_then,
        },
        "page": {"place": seen.page, "shown": seen.page_shown, "external": seen.external},
        "reload": reload(system, environment, _EDITS) if system.reload else None,
        "mistakes": {name: asdict(verdict) for name, verdict in verdicts.items()},
        "types": find_type_errors(system, environment),
    }


if __name__ == "__main__":
    sys.exit(main())
