"""Nobody shows the mesh token to another machine in plain text, unless a switch says so."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import pyserve as api
from pyserve.config import read_settings
from pyserve.control.discovery import read_record
from pyserve.control.home import TOKEN_BYTES
from pyserve.errors import MeshError
from tests.mesh.commands import ROOT, pyserve
from tests.mesh.start.processes import application, standing, status_of

# Of documentation (RFC 5737): no host has it, and none may be asked.
FAR = "192.0.2.1:7000"
GUIDE = ROOT / "docs" / "guide" / "security.md"
TARGET = "tests.mesh.apps.small:app"


@pytest.fixture
def far(mesh_environment: dict[str, str], tmp_path: Path) -> dict[str, str]:
    """The environment of a process whose controller is on another machine."""
    token = tmp_path / "token"
    token.touch(mode=0o600)
    token.write_text("ab" * TOKEN_BYTES)
    return {
        **mesh_environment,
        "PYSERVE_CONTROLLER": FAR,
        "PYSERVE_TOKEN_FILE": str(token),
    }


def is_refusal(text: str) -> bool:
    """Whether a text names the controller and both remedies, without a traceback."""
    named = (FAR, "PYSERVE_MESH_TLS_CERT_FILE", "security.md", "PYSERVE_MESH_PLAIN_TCP=1")
    return all(each in text for each in named) and "Traceback" not in text


@pytest.mark.parametrize(
    "command",
    [
        ("start", "--no-ingress"),
        ("run", TARGET, "--address", "127.0.0.1:0"),
        ("ingress", "--address", "127.0.0.1:0"),
        ("replica", TARGET, "--deployment", "Small"),
        ("deploy", "-"),
        ("delete", "shop", "-y"),
        ("config",),
        ("status",),
        ("logs", "Small"),
        ("top", "--once"),
        ("explain",),
        ("cordon", "node:here"),
        ("haproxy-config",),
        ("shutdown",),
    ],
    ids=lambda command: command[0],
)
def test_each_command_refuses(command: tuple[str, ...], far: dict[str, str]) -> None:
    done = pyserve(*command, environment=far, text="applications: []\n")
    assert 1 == done.returncode, done.stderr
    assert is_refusal(done.stderr), done.stderr


def test_a_controller_that_an_option_names_is_refused_too(far: dict[str, str]) -> None:
    del far["PYSERVE_CONTROLLER"]
    done = pyserve("status", "--controller", FAR, environment=far)
    assert 1 == done.returncode
    assert is_refusal(done.stderr), done.stderr
    assert "--controller names" in done.stderr


def test_the_doctor_says_it_and_asks_nobody(far: dict[str, str]) -> None:
    done = pyserve("doctor", environment=far)
    assert 1 == done.returncode
    assert is_refusal(done.stdout.replace("\n", " ")), done.stdout


def test_a_replica_of_a_launcher_refuses(far: dict[str, str]) -> None:
    """As in a pod or an actor of Ray, whose controller is named by an argument."""
    words = ("--controller", FAR, "--application", "shop", "--deployment", "Small")
    done = subprocess.run(
        [sys.executable, "-m", "pyserve.replica", *words],
        cwd=ROOT,
        env=far,
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    assert 2 == done.returncode
    assert is_refusal(done.stderr), done.stderr


def test_a_program_refuses(far: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in far.items():
        monkeypatch.setenv(name, value)
    for ask in (api.status, lambda: api.get_app_handle("shop")):
        with pytest.raises(MeshError) as caught:
            ask()
        assert is_refusal(str(caught.value))


def test_a_mesh_of_one_machine_is_open_for_calls_and_not_for_the_token(
    mesh_environment: dict[str, str],
) -> None:
    """It works as it did; its controller has no port but the Unix socket."""
    environment = {**mesh_environment, "PYSERVE_BIND_HOST": "0.0.0.0"}
    with standing(environment), application(environment, TARGET):
        assert "RUNNING" == status_of(environment)["applications"]["default"]["status"]
        record = read_record(Path(environment["PYSERVE_HOME"]))
        assert record is not None
        assert "" == record.controller_tcp


def test_the_certificates_of_the_guide_are_good(
    mesh_environment: dict[str, str], tmp_path: Path
) -> None:
    """Made and named as it says, for a controller that another one's command asks over TCP."""
    section = GUIDE.read_text(encoding="utf-8").partition("\n## TLS between processes\n")[2]
    making, naming = re.findall(r"```bash\n(.*?)```", section, re.DOTALL)[:2]
    subprocess.run(
        ["bash", "-euc", making], cwd=tmp_path, check=True, capture_output=True, timeout=30
    )
    named = dict(re.findall(r"^export (PYSERVE_MESH_TLS_\w+)=(\S+)", naming, re.MULTILINE))
    files = {
        name: value.replace("/etc/pyserve/mesh", str(tmp_path)) for name, value in named.items()
    }
    environment = {**mesh_environment, **files, "PYSERVE_BIND_HOST": "0.0.0.0"}
    assert "PYSERVE_MESH_PLAIN_TCP" not in environment
    with standing(environment, "--no-ingress"):
        record = read_record(Path(environment["PYSERVE_HOME"]))
        assert record is not None
        # The wildcard is not loopback, and leads here.
        assert record.controller_tcp.startswith("0.0.0.0:")
        asked = pyserve("status", "--controller", record.controller_tcp, environment=environment)
        assert 0 == asked.returncode, asked.stderr


def test_with_the_switch_it_is_shown(mesh_environment: dict[str, str]) -> None:
    environment = {
        **mesh_environment,
        "PYSERVE_BIND_HOST": "0.0.0.0",
        "PYSERVE_MESH_PLAIN_TCP": "1",
    }
    assert read_settings(environment).node.plain_tcp
    with standing(environment, "--no-ingress"):
        record = read_record(Path(environment["PYSERVE_HOME"]))
        assert record is not None
        # The wildcard is not loopback, and leads here.
        asked = pyserve("status", "--controller", record.controller_tcp, environment=environment)
        assert 0 == asked.returncode, asked.stderr
