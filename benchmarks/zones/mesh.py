"""A mesh over several hosts: a controller on the first one, ingresses and replicas."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.machine import ROOT
from benchmarks.zones.application import JOURNALS_VARIABLE
from benchmarks.zones.network import Host

TARGET = "benchmarks.zones.application:app"
DEPLOYMENT = "Echo"
INGRESS_PORT = 8000
_CONTROLLER_PORT = 8001
_TIMEOUT_S = 60.0
_POLL_S = 0.05


class MeshFailed(Exception):
    """A process of the mesh did not come up, or ended; the text has its output."""


class Mesh:
    """Processes on hosts; see ``running``.

    Attributes:
        hosts: Where they are; the first one has the controller.
        folder: Of their homes, their output, and the replicas' journals.
        replicas: Processes by the names of their hosts.
        ingresses: The same.
    """

    def __init__(self, hosts: Sequence[Host], folder: Path, variables: Mapping[str, str]) -> None:
        self.hosts = hosts
        self.folder = folder
        self.journals = folder / "journals"
        self.replicas: dict[str, list[subprocess.Popen[bytes]]] = {each.name: [] for each in hosts}
        self.ingresses: dict[str, subprocess.Popen[bytes]] = {}
        self.controller: subprocess.Popen[bytes] | None = None
        self._variables = variables
        self.journals.mkdir()

    def start(self, replicas: Mapping[str, int]) -> None:
        """Start everything, and wait until it serves.

        Args:
            replicas: How many there are, by the names of the hosts that have an ingress.

        Raises:
            MeshFailed: It does not.
        """
        first = self.hosts[0]
        self.controller = self._run(first, "start", "--no-ingress")
        self._wait(lambda: self._shows(first, "start", "is ready at"), "the controller")
        for host in self.hosts:
            if host.name in replicas:
                self._populate(host, replicas[host.name])
        wanted = sum(replicas.values())
        self._wait(
            lambda: len(self.running()) == wanted and self._listening(), "replicas and ingresses"
        )

    def running(self) -> set[int]:
        """Return the process ids of the replicas that the controller takes for running."""
        applications = self.status().get("applications", {})
        deployments = [each["deployments"] for each in applications.values()]
        replicas = [each["replicas"] for one in deployments for each in one.values()]
        return {one["pid"] for each in replicas for one in each if one["state"] == "RUNNING"}

    def status(self) -> dict[str, Any]:
        """Return what ``pyserve status --json`` says on the controller's host; {} before it can."""
        done = subprocess.run(
            self.hosts[0].command([sys.executable, "-P", "-m", "pyserve", "status", "--json"]),
            env=self._environment(self.hosts[0]),
            capture_output=True,
            timeout=_TIMEOUT_S,
            check=False,
        )
        found: dict[str, Any] = json.loads(done.stdout) if done.returncode == 0 else {}
        return found

    def stop(self) -> None:
        """End everything: who calls before who is called, the controller at last."""
        _end([*self.ingresses.values()])
        _end([each for some in self.replicas.values() for each in some])
        if self.controller is not None:
            _end([self.controller])

    def _populate(self, host: Host, replicas: int) -> None:
        address = f"0.0.0.0:{INGRESS_PORT}"
        self.ingresses[host.name] = self._run(host, "ingress", "--address", address)
        for _ in range(replicas):
            process = self._run(host, "replica", TARGET, "--deployment", DEPLOYMENT)
            self.replicas[host.name].append(process)

    def _listening(self) -> bool:
        hosts = (each for each in self.hosts if each.name in self.ingresses)
        return all(self._shows(each, "ingress", "the ingress listens at") for each in hosts)

    def _run(self, host: Host, role: str, *arguments: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-P", "-m", "pyserve", role, *arguments]
        return host.popen(command, self._environment(host), self._log(host, role))

    def _environment(self, host: Host) -> dict[str, str]:
        home = self.folder / host.name
        home.mkdir(mode=0o700, exist_ok=True)
        first = self.hosts[0]
        found = {
            **os.environ,
            "PYSERVE_HOME": str(home),
            "PYSERVE_NODE_ID": host.name,
            "PYSERVE_ZONE": host.zone,
            "PYSERVE_BIND_HOST": host.address,
            "PYSERVE_CONTROLLER": f"{first.address}:{_CONTROLLER_PORT}",
            # Its machines are network namespaces of this one.
            "PYSERVE_MESH_PLAIN_TCP": "1",
            "PYSERVE_METRICS_PORT": "off",
            "PYTHONPATH": str(ROOT),
            JOURNALS_VARIABLE: str(self.journals),
            **self._variables,
        }
        if host is not first:
            # Of the controller's home, as somebody would have copied it.
            found["PYSERVE_TOKEN_FILE"] = str(self.folder / first.name / "token")
        return found

    def _log(self, host: Host, role: str) -> Path:
        return self.folder / f"{host.name}-{role}.log"

    def _shows(self, host: Host, role: str, text: str) -> bool:
        log = self._log(host, role)
        return log.is_file() and text in log.read_text()

    def _wait(self, is_true: Callable[[], bool], what: str) -> None:
        end = time.monotonic() + _TIMEOUT_S
        while not is_true():
            ended = [each for each in self._processes() if each.poll() is not None]
            if ended or time.monotonic() > end:
                logs = "\n".join(each.read_text() for each in self.folder.glob("*.log"))
                raise MeshFailed(f"{what} did not come up:\n{logs}")
            time.sleep(_POLL_S)

    def _processes(self) -> Iterator[subprocess.Popen[bytes]]:
        if self.controller is not None:
            yield self.controller
        yield from self.ingresses.values()
        for some in self.replicas.values():
            yield from some


@contextlib.contextmanager
def running(
    hosts: Sequence[Host], replicas: Mapping[str, int], variables: Mapping[str, str]
) -> Iterator[Mesh]:
    """Have a mesh until the end of the context.

    Args:
        hosts: Where; the first one has the controller too.
        replicas: How many, by the names of hosts.
        variables: Of all processes.

    Raises:
        MeshFailed: It does not come up.
    """
    with tempfile.TemporaryDirectory(prefix="zones-", dir="/tmp") as folder:
        mesh = Mesh(hosts, Path(folder), variables)
        try:
            mesh.start(replicas)
            yield mesh
        finally:
            mesh.stop()


def _end(processes: Sequence[subprocess.Popen[bytes]]) -> None:
    for each in processes:
        if each.poll() is None:
            each.send_signal(signal.SIGTERM)
    for each in processes:
        try:
            each.wait(_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            each.kill()
            each.wait()
