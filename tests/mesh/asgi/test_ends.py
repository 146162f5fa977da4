"""The end of a whole mesh that has WebSockets."""

from __future__ import annotations

import http.client
import json
import os
import signal
import time
from pathlib import Path

import httpx
import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

from tests.mesh.commands import pyserve as command
from tests.mesh.ingress.conftest import VARIABLES
from tests.support.mesh import RunningMesh, running_mesh
from tests.support.waiting import wait_until

pytestmark = pytest.mark.slow
# Half the default grace, which the WebSocket would take as a whole.
_END_TIMEOUT_S = 10.0


def _direct_port(mesh: RunningMesh) -> str:
    """Return where a balancer reaches the replica itself."""
    told = command("status", "--json", environment={**os.environ, "PYSERVE_HOME": str(mesh.home)})
    (deployment,) = json.loads(told.stdout)["applications"]["default"]["deployments"].values()
    (replica,) = deployment["replicas"]
    return str(replica["direct_http"])


def _check_direct_port(address: str) -> None:
    """Check that a balancer is told to go elsewhere, and its WebSockets too."""
    assert 503 == httpx.get(f"http://{address}/-/healthz", timeout=30).status_code
    with connect(f"ws://{address}/idle", proxy=None) as connection:
        with pytest.raises(ConnectionClosed):
            connection.recv(30)
        assert 1012 == connection.close_code


@pytest.mark.parametrize("announced_s", [0.0, 1.0])
@pytest.mark.parity("G-34")
def test_websockets_are_closed_while_requests_go_on(announced_s: float, tmp_path: Path) -> None:
    environment = {
        **VARIABLES,
        "ENDING_FOLDER": str(tmp_path),
        "PYSERVE_INGRESS_DRAIN_S": str(announced_s),
    }
    with running_mesh("tests.mesh.asgi.ending:app", environment=environment) as mesh:
        direct = _direct_port(mesh)
        request = http.client.HTTPConnection(mesh.address, timeout=30)
        request.request("GET", "/long")
        answer = request.getresponse()
        assert b"first " == answer.read(6)
        with connect(f"ws://{mesh.address}/idle", proxy=None) as connection:
            told_s = time.monotonic()
            mesh.process.send_signal(signal.SIGTERM)
            with pytest.raises(ConnectionClosed):
                connection.recv(_END_TIMEOUT_S)
            # Before that a client that comes again would reach the same ingress.
            assert announced_s <= time.monotonic() - told_s
            assert 1012 == connection.close_code
        wait_until((tmp_path / "left").exists)
        _check_direct_port(direct)
        assert mesh.process.poll() is None, "a request is in flight"
        (tmp_path / "last").touch()
        assert b"last" == answer.read()
        request.close()
        mesh.process.wait(_END_TIMEOUT_S)
        assert time.monotonic() - told_s < _END_TIMEOUT_S
        assert "1012" == (tmp_path / "left").read_text()


def test_an_idle_websocket_does_not_delay_a_shutdown(tmp_path: Path) -> None:
    environment = {"ENDING_FOLDER": str(tmp_path)}
    with running_mesh("tests.mesh.asgi.ending:app", environment=environment) as mesh:
        with connect(f"ws://{mesh.address}/idle", proxy=None) as connection:
            told_s = time.monotonic()
            done = command("shutdown", environment={**os.environ, "PYSERVE_HOME": str(mesh.home)})
            assert 0 == done.returncode, done.stderr
            with pytest.raises(ConnectionClosed):
                connection.recv(_END_TIMEOUT_S)
            assert 1012 == connection.close_code
        mesh.process.wait(_END_TIMEOUT_S)
        assert time.monotonic() - told_s < _END_TIMEOUT_S
        assert "1012" == (tmp_path / "left").read_text()
