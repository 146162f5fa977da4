"""Replicas that nobody launched: they join a running mesh from a node and a zone of their own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from pyserve.config import read_settings
from pyserve.control.discovery import find_mesh
from tests.support.leftovers import SESSION_VARIABLE
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from tests.support.mesh import RunningMesh
    from tests.support.session import Session

_START_TIMEOUT_S = 30.0
_END_TIMEOUT_S = 30.0


@contextmanager
def joined_replica(
    mesh: RunningMesh, deployment: str, *, node: str, zone: str
) -> Iterator[subprocess.Popen[bytes]]:
    """Start a replica of a deployment as a launcher on another machine would.

    It drains at the block's end, and has to exit with 0. ``all_run`` says when it serves.

    Args:
        mesh: Where it joins.
        deployment: Of the application "default".
        node: Its ``PYSERVE_NODE_ID``.
        zone: Its ``PYSERVE_ZONE``.
    """
    address = find_mesh(read_settings({"PYSERVE_HOME": str(mesh.home)}))
    assert address is not None
    token_reader, token_writer = os.pipe()
    liveness_reader, liveness = os.pipe()
    with os.fdopen(token_writer, "wb") as pipe:
        pipe.write(address.token)  # Far smaller than a pipe's buffer.
    with mesh.log.open("ab") as output:
        process = subprocess.Popen(
            [
                *(sys.executable, "-P", "-m", "pyserve.replica"),
                *("--controller", address.controller),
                *("--application", "default", "--deployment", deployment),
                *("--token-fd", str(token_reader), "--liveness-fd", str(liveness_reader)),
            ],
            cwd=mesh.home,
            env={
                **os.environ,
                "PYTHONPATH": os.pathsep.join(sys.path),
                "PYSERVE_HOME": str(mesh.home),
                "PYSERVE_NODE_ID": node,
                "PYSERVE_ZONE": zone,
                SESSION_VARIABLE: mesh.session,
            },
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            pass_fds=(token_reader, liveness_reader),
            start_new_session=True,
        )
    os.close(token_reader)
    os.close(liveness_reader)
    try:
        yield process
        process.send_signal(signal.SIGTERM)
        assert 0 == process.wait(_END_TIMEOUT_S)
    finally:
        os.close(liveness)
        with suppress(ProcessLookupError):
            process.kill()
        process.wait()


def all_run(session: Session, replicas: dict[str, int]) -> None:
    """Wait until deployments of "default" have as many replicas that serve, and routers know."""

    def running() -> dict[str, int]:
        (application,) = session.client.status().applications
        return {
            each.name: sum(replica.state == "RUNNING" for replica in each.replicas)
            for each in application.deployments
            if each.name in replicas
        }

    wait_until(lambda: replicas == running(), _START_TIMEOUT_S, f"{replicas} run")
