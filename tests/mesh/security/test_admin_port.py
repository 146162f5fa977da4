"""The admin port of a mesh whose access rules hide names from callers."""

from __future__ import annotations

import contextlib
import socket
from contextlib import closing
from pathlib import Path

import httpx
import psutil
import pytest

from pyserve.config import read_settings
from pyserve.control.discovery import find_mesh, read_record
from pyserve.driver.client import ControlClient
from tests.mesh.commands import pyserve
from tests.support.authority import Authority, Files
from tests.support.mesh import RunningMesh, running_mesh

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]

TIMEOUT_S = 20.0
CROWD = 200
PATHS = ("/metrics", "/-/targets", "/api/overview.json", "/api/methods.json", "/api/events")


def test_names_are_for_those_who_have_a_key(tmp_path: Path) -> None:
    """Others of this machine cannot read what callers may not ask for; the commands can."""
    rules = tmp_path / "access.yaml"
    rules.write_text("default: deny\n")
    variables = {"PYSERVE_ACCESS_FILE": str(rules)}
    with running_mesh("tests.mesh.security.apps:shop", environment=variables) as mesh:
        address = admin_of(mesh)
        base = f"http://{address}"
        for path in PATHS:
            refused = httpx.get(base + path, timeout=TIMEOUT_S, trust_env=False)
            assert 401 == refused.status_code, path
            assert "Things" not in refused.text
        tried = {"path": "/things.v1.Things/Echo", "message": "{}"}
        called = httpx.post(
            f"{base}/api/call",
            json=tried,
            headers={"x-pyserve-page": "1"},
            timeout=TIMEOUT_S,
            trust_env=False,
        )
        assert 401 == called.status_code

        environment = {"PYSERVE_HOME": str(mesh.home)}
        top = pyserve("top", "--once", environment={**environment, "PATH": "/usr/bin:/bin"})
        assert 0 == top.returncode, top.stderr
        assert "Things" in top.stdout


@pytest.mark.parametrize("client_certs", ["required", "optional"])
def test_names_are_for_those_who_have_a_certificate_where_callers_need_one(
    tmp_path: Path, client_certs: str
) -> None:
    root = Authority()
    files = Files(tmp_path / "tls")
    files.write(root.issue("127.0.0.1"), root)
    variables = {**files.environment("PYSERVE_TLS"), "PYSERVE_TLS_CLIENT_CERT": client_certs}
    with running_mesh("tests.mesh.security.apps:shop", environment=variables) as mesh:
        address = admin_of(mesh)
        for path in PATHS[:-1]:  # The last one has no end for those who may look.
            answer = httpx.get(f"http://{address}{path}", timeout=TIMEOUT_S, trust_env=False)
            assert (401 == answer.status_code) is (client_certs == "required"), path
            assert client_certs == "optional" or "Things" not in answer.text


def test_a_crowd_at_it_takes_few_descriptors() -> None:
    with running_mesh("tests.mesh.apps.small:app") as mesh:
        host, _, port = admin_of(mesh).rpartition(":")
        record = read_record(mesh.home)
        assert record is not None
        process = psutil.Process(record.pid)
        before = process.num_fds()
        with contextlib.ExitStack() as crowd:
            for _ in range(CROWD):
                crowd.enter_context(socket.create_connection((host, int(port)), TIMEOUT_S))
            url = f"http://{host}:{port}/metrics"
            page = httpx.get(url, timeout=TIMEOUT_S, trust_env=False)
            assert 200 == page.status_code
            assert process.num_fds() - before < CROWD / 2


def admin_of(mesh: RunningMesh) -> str:
    address = find_mesh(read_settings({"PYSERVE_HOME": str(mesh.home)}))
    assert address is not None
    with closing(ControlClient(address)) as client:
        reply = client.status()
    found = {reply.admin, *(each.admin for each in reply.ingresses)} - {""}
    assert found, reply
    return str(found.pop())
