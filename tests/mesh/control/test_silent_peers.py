"""Peers that vanish without a word: stopped for ever, or on a machine that is gone."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import cloudpickle
import pytest

from pyserve.config import DeploymentOptions
from pyserve.config.control import KEEPALIVE_PERIOD_S, KEEPALIVE_TIMEOUT_S
from pyserve.launch import MeshProcess
from pyserve.version import version
from pyserve.wire.v1 import control_pb2, mesh_pb2
from tests.mesh.control.peers import Peer, ends_s, message, peer_of, token_of
from tests.support.waiting import wait_until

pytestmark = pytest.mark.slow
# The bound, twice: machines are busy.
NOTICED_S = 2 * (KEEPALIVE_PERIOD_S + KEEPALIVE_TIMEOUT_S)
FOLLOW = """
import os, sys
from pyserve.config import read_settings
from pyserve.control.discovery import find_mesh
from pyserve.control.state.specs import Run
from pyserve.driver.client import ControlClient

lines = ControlClient(find_mesh(read_settings())).follow(Run("another", os.getpid()))
print("follows", flush=True)
for line in lines:
    pass
"""


@pytest.fixture
def mesh(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> Iterator[MeshProcess]:
    """Start a mesh that is reached over both kinds of sockets."""
    monkeypatch.setenv("PYSERVE_HOME", str(tmp_path_factory.mktemp("h")))
    mesh = MeshProcess.start(("127.0.0.1:0",), environment={"PYSERVE_ADVERTISE_HOST": "127.0.0.1"})
    try:
        yield mesh
    finally:
        mesh.close(NOTICED_S)


def streams() -> dict[str, bytes]:
    """Return calls that stay, with their requests."""
    spec = mesh_pb2.DeploymentSpec(
        name="Slow",
        options_json=DeploymentOptions.of({"startup_timeout_s": 600}).to_json(),
        arguments=cloudpickle.dumps(((), {})),
        code=mesh_pb2.Code(
            import_path="tests.mesh.apps.slow:Slow",
            sys_path=[str(Path.cwd()), *filter(None, sys.path)],
            working_directory=str(Path.cwd()),
        ),
    )
    requests = {
        "Control/Follow": control_pb2.FollowRequest(run=control_pb2.Run(id="a", pid=1)),
        "Mesh/Watch": mesh_pb2.WatchRequest(node="here", all=True, version=version()),
        "Control/Deploy": control_pb2.DeployRequest(application="slow", deployments=[spec]),
    }
    return {
        f"/pyserve.wire.v1.{method}": request.SerializeToString()
        for method, request in requests.items()
    }


@contextmanager
def silent_peers(mesh: MeshProcess) -> Iterator[list[Peer]]:
    """Open each kind of stream over each kind of socket, and answer nothing from then on."""
    token = token_of(mesh.address().token)
    with ExitStack() as stack:
        peers = []
        for address in (mesh.record.controller, mesh.record.controller_tcp):
            for path, body in streams().items():
                peer = stack.enter_context(peer_of(address))
                peer.begin(path, token, message(len(body), body))
                peer.half_close()
                peer.head()
                assert "grpc-status" not in peer.answer
                peers.append(peer)
        yield peers


def test_streams_of_peers_that_fall_silent_end(mesh: MeshProcess) -> None:
    """Follow, Watch and Deploy; over TCP and over the Unix socket."""
    with silent_peers(mesh) as peers:
        ends = ends_s(peers, NOTICED_S)
    assert 6 == len(ends)
    # Nobody is let go of at once: a machine may be busy for a while.
    assert min(ends) > KEEPALIVE_TIMEOUT_S


def test_a_run_that_is_stopped_for_ever_does_not_keep_the_mesh(mesh: MeshProcess) -> None:
    with subprocess.Popen([sys.executable, "-c", FOLLOW], stdout=subprocess.PIPE) as run:
        try:
            assert run.stdout is not None
            assert b"follows\n" == run.stdout.readline()
            os.kill(run.pid, signal.SIGSTOP)
            # Its starter goes; the other run is what the mesh would stay for.
            mesh.let_go()

            wait_until(lambda: mesh.poll() is not None, NOTICED_S, "the mesh has ended")
        finally:
            run.kill()
    assert 0 == mesh.poll()
