"""``make bench NAME=recovery``: controllers are killed at random points of deploys.

A driver calls through a handle all the time. After each kill the next controller has to come to
what was deployed, no call may fail, and no replica may be started twice.
Exit code: 0 when all of it holds, 1 when something does not.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path

import uvloop

import pyserve
from benchmarks.chaos.applications import numbered
from benchmarks.chaos.load import OpenLoop, ask
from benchmarks.chaos.scenarios import Outcome
from benchmarks.machine import ROOT, stamp
from pyserve.api.graph import pack
from pyserve.config import read_settings
from pyserve.control.discovery import find_mesh
from pyserve.driver.client import ControlClient
from pyserve.driver.status import MeshStatus, read_status
from pyserve.errors import MeshUnavailable
from pyserve.types import ApplicationName, MeshAddress

_RESULTS = ROOT / "benchmarks" / "results" / "controllers.json"
_RATE_PER_S = 100.0
_SETTLE_TIMEOUT_S = 60.0
_LOOK_INTERVAL_S = 0.05
# A deploy of two replicas takes one to three seconds; some kills should come after it.
_KILL_WITHIN_S = 3.0
_DOWN_S_MAX = 1.0
_REPORT_BYTES_MAX = 1 << 20


class PersistentMesh:
    """One controller after another in one home directory, without an ingress.

    Args:
        environment: Of the controllers; ``PYSERVE_HOME`` among them.
        log: The file for their output.
    """

    def __init__(self, environment: dict[str, str], log: Path) -> None:
        self._log = log
        self._environment = {**environment, "PYSERVE_INGRESS_LOCATION": "Disabled"}
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start a controller, and wait until it listens.

        Raises:
            RuntimeError: It could not; the text says why.
        """
        reader, writer = os.pipe()
        command = [sys.executable, "-m", "pyserve.control", "--persistent", "--report-fd"]
        try:
            with self._log.open("ab") as log:
                self._process = subprocess.Popen(
                    [*command, str(writer)],
                    cwd=ROOT,
                    env=self._environment,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    pass_fds=(writer,),
                )
        finally:
            os.close(writer)
        with os.fdopen(reader) as report:
            answer = json.loads(report.readline(_REPORT_BYTES_MAX) or '{"error": "it has ended"}')
        if "error" in answer:
            self._process.wait()
            raise RuntimeError(f"the controller does not start: {answer['error']}")

    def kill(self) -> None:
        """Kill the controller, and nothing else."""
        assert self._process is not None, "it was started"
        self._process.kill()
        self._process.wait()

    def terminate(self, timeout_s: float = _SETTLE_TIMEOUT_S) -> int:
        """End it in order, as a service manager does; return its exit status."""
        assert self._process is not None, "it was started"
        self._process.terminate()
        return self._process.wait(timeout_s)

    def shut_down(self, timeout_s: float = _SETTLE_TIMEOUT_S) -> int:
        """End it with its applications; return its exit status."""
        assert self._process is not None, "it was started"
        with closing(ControlClient(self.address())) as client:
            client.shutdown(5.0)
        return self._process.wait(timeout_s)

    def address(self) -> MeshAddress:
        """Return where the controller listens."""
        address = find_mesh(read_settings({"PYSERVE_HOME": self._environment["PYSERVE_HOME"]}))
        if address is None:
            raise RuntimeError("no controller listens")
        return address

    def status(self) -> MeshStatus:
        """Return what runs."""
        with closing(ControlClient(self.address())) as client:
            return read_status(client.status())


async def killed_controllers(mesh: PersistentMesh, journal: Path, seeds: Iterable[int]) -> Outcome:
    """Kill a controller in the middle of a deploy, once for each seed.

    This process is attached to the mesh, and nothing is deployed yet.
    """
    deployer = _Deployer(mesh, journal)
    await asyncio.to_thread(deployer.deploy, 0)
    handle = pyserve.get_app_handle("default")
    load = OpenLoop([ask(handle)], _RATE_PER_S)
    stop, problems = asyncio.Event(), []
    driving = asyncio.create_task(load.run(stop))
    current = 0
    try:
        for seed in seeds:
            wanted = current + 1
            known = await _kill_during_deploy(mesh, deployer, wanted, random.Random(seed))
            problem = await _settle(mesh)
            current, answer = wanted, await handle.options(timeout_s=_SETTLE_TIMEOUT_S).remote()
            # Of a deploy that nobody had heard of nothing need be left.
            if answer not in ({wanted} if known else {wanted, wanted - 1}):
                problem += f" {answer} answers instead of {wanted}"
            if answer != wanted:
                current = wanted - 1
            if problem:
                problems.append(f"seed {seed}: {problem.strip()}")
    finally:
        stop.set()
        await driving
    failed = load.ended.total() - load.ended["OK"]
    if failed:
        problems.append(f"{failed} of {load.ended.total()} calls failed: {dict(load.ended)}")
    starts = _starts(journal)
    if twice := [name for name, count in starts.items() if count > 1]:
        problems.append(f"started more than once: {', '.join(twice)}")
    return Outcome({**load.figures(), "replicas_started": len(starts)}, problems)


def _starts(journal: Path) -> Counter[str]:
    return Counter(line.split()[0] for line in journal.read_text().splitlines())


async def _kill_during_deploy(
    mesh: PersistentMesh, deployer: _Deployer, number: int, draw: random.Random
) -> bool:
    """Return whether the controller had said anything about the deploy before it was killed."""
    deploying = asyncio.create_task(asyncio.to_thread(deployer.deploy, number))
    await asyncio.sleep(draw.uniform(0.0, _KILL_WITHIN_S))
    await asyncio.to_thread(mesh.kill)
    await asyncio.sleep(draw.uniform(0.0, _DOWN_S_MAX))
    await asyncio.to_thread(mesh.start)
    return await deploying


class _Deployer:
    def __init__(self, mesh: PersistentMesh, journal: Path) -> None:
        self._mesh = mesh
        self._journal = journal

    def deploy(self, number: int) -> bool:
        """Deploy one version; return whether the controller has said anything about it."""
        heard = False
        packed = pack(numbered(number, self._journal), ApplicationName("default"))
        try:
            address = self._mesh.address()
        except RuntimeError:  # It was killed before this thread began.
            return False
        with closing(ControlClient(address)) as client:
            try:
                for _event in client.deploy(packed, route_prefix=None, timeout_s=_SETTLE_TIMEOUT_S):
                    heard = True
            except MeshUnavailable:
                return heard
        return True


async def _settle(mesh: PersistentMesh) -> str:
    """Wait until everything is as it should be; return what is not."""
    deadline = time.monotonic() + _SETTLE_TIMEOUT_S
    while True:
        found = await asyncio.to_thread(mesh.status)
        if not (problem := _problem_of(found)) or time.monotonic() >= deadline:
            return problem
        await asyncio.sleep(_LOOK_INTERVAL_S)


def _problem_of(found: MeshStatus) -> str:
    application = found.applications.get("default")
    if application is None:
        return "the application is gone"
    (deployment,) = application.deployments.values()
    states = sorted(each.state for each in deployment.replicas)
    if (deployment.status, states) == ("HEALTHY", ["RUNNING", "RUNNING"]):
        return ""
    return f"is {deployment.status} ({deployment.message}) with replicas {states}"


def main() -> int:
    """Run the scenario, print and write what it found."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.chaos.controllers")
    parser.add_argument("--rounds", type=int, default=100, help="how many controllers are killed")
    parser.add_argument("--seed", type=int, default=0, help="of the first one; others follow")
    parser.add_argument("--output", type=Path, default=_RESULTS)
    options = parser.parse_args()
    # A mesh that runs on this machine already is none of our business.
    for name in [name for name in os.environ if name.startswith("PYSERVE_")]:
        del os.environ[name]
    with tempfile.TemporaryDirectory(prefix="pyserve-chaos-") as home:
        os.environ["PYSERVE_HOME"] = home
        mesh = PersistentMesh(dict(os.environ), Path(home, "log"))
        mesh.start()
        try:
            seeds = range(options.seed, options.seed + options.rounds)
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                outcome = runner.run(killed_controllers(mesh, Path(home, "journal"), seeds))
        finally:
            mesh.shut_down()
    text = json.dumps({"machine": stamp(), **outcome.figures, "problems": outcome.problems})
    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.write_text(text + "\n", encoding="utf-8")
    print("\n".join([*outcome.problems, f"report: {options.output}"]))
    return 1 if outcome.problems else 0


if __name__ == "__main__":
    raise SystemExit(main())
