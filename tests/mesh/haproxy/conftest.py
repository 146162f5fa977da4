"""A mesh whose replicas are reached directly, and the real HAProxy in front of it."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.mesh.commands import ROOT
from tests.mesh.commands import pyserve as command
from tests.mesh.ingress.conftest import VARIABLES as DIRECT_PORTS
from tests.support import haproxy
from tests.support.mesh import RunningMesh, running_mesh
from tests.support.ports import free_port
from tests.support.session import attached
from tests.support.waiting import wait_until

_TIMEOUT_S = 20.0
VARIABLES = {
    **DIRECT_PORTS,
    # Longer than it takes to notice that a replica drains.
    "PYSERVE_INGRESS_DRAIN_S": "2",
    "PYSERVE_TRUSTED_PROXIES": "127.0.0.1",
}
_WHY_NOT = haproxy.why_not()


@dataclass(frozen=True)
class Outer:
    """HAProxy and what keeps its configuration current.

    Attributes:
        address: Where it listens, "host:port".
        config: Its configuration.
        master: The socket of its master.
    """

    address: str
    config: Path
    master: Path

    def wait_for(self, replica_id: str) -> None:
        """Wait until HAProxy's one worker sends calls to that replica."""
        wait_until(lambda: self.names(replica_id), _TIMEOUT_S, f"{replica_id} in {self.config}")
        wait_until(
            lambda: haproxy.sends_to(self.master, _server(replica_id)),
            _TIMEOUT_S,
            f"HAProxy has {self.config}",
        )

    def names(self, replica_id: str) -> bool:
        """Tell whether the configuration that is written has that replica."""
        return f"server {_server(replica_id)} " in self.config.read_text()


def _server(replica_id: str) -> str:
    return replica_id.replace("#", ":")


@pytest.fixture(scope="package", autouse=True)
def needs_haproxy() -> None:
    """Skip where it is not installed."""
    if _WHY_NOT is not None:
        pytest.skip(_WHY_NOT)


def _catches(pid: int, number: int) -> bool:
    """Whether a process has a handler for the signal, which ends it in order."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    (mask,) = (int(each.split()[1], 16) for each in lines if each.startswith("SigCgt:"))
    return bool(mask & (1 << (number - 1)))


@contextmanager
def outer(environment: Mapping[str, str], folder: Path, *options: str) -> Iterator[Outer]:
    """Run HAProxy in front of the mesh of ``environment``, and keep it current."""
    address, config = f"127.0.0.1:{free_port()}", folder / "haproxy.cfg"
    given = ["haproxy-config", "--output", str(config), "--bind", address, *options]
    written = command(*given, environment=dict(environment))
    assert 0 == written.returncode, written.stderr
    with haproxy.running(config) as master, (folder / "watch.log").open("wb") as log:
        arguments = [*given, "--watch", "--interval", "0.2", "--master-socket", str(master)]
        watch = subprocess.Popen(
            [sys.executable, "-m", "pyserve", *arguments],
            cwd=ROOT,
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
        )
        try:
            wait_until(lambda: _catches(watch.pid, signal.SIGTERM), _TIMEOUT_S)
            yield Outer(address, config, master)
        except BaseException as error:
            error.add_note((folder / "watch.log").read_text())
            error.add_note(config.read_text())
            raise
        finally:
            watch.terminate()
            try:
                assert 0 == watch.wait(_TIMEOUT_S)
            finally:
                watch.kill()
                watch.wait()


@pytest.fixture(scope="package")
def mesh() -> Iterator[RunningMesh]:
    """Run a web application below a prefix, and attach this process to its mesh."""
    with (
        running_mesh(
            "tests.mesh.haproxy.apps:api",
            *("--name", "api", "--route-prefix", "/api"),
            environment=VARIABLES,
        ) as running,
        attached(running.home),
    ):
        yield running


@pytest.fixture(scope="package")
def proxy(mesh: RunningMesh, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Outer]:
    """Run HAProxy in front of it."""
    import os

    environment = {**os.environ, **VARIABLES, "PYSERVE_HOME": str(mesh.home)}
    with outer(environment, tmp_path_factory.mktemp("haproxy")) as running:
        yield running
