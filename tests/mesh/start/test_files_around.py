"""Files in the working directory that are named like modules stand in nobody's way."""

import importlib.util
from pathlib import Path

import httpx
import pytest

from tests.mesh.start.processes import END_TIMEOUT_S, address_of, command, pids, status_of
from tests.support.waiting import wait_until

pytestmark = pytest.mark.slow

# The standard library's, a dependency's, and pyserve itself.
_NAMES = ("types.py", "select.py", "click.py", "pyserve/__init__.py")
# What libraries would like to have, and are not installed here.
_OPTIONAL = (
    *("sniffio", "multipart", "python_multipart", "snappy", "brotli", "zstandard", "orjson"),
    *("ujson", "trio", "h2", "socksio", "email_validator", "simplejson", "curio", "setproctitle"),
)
_NOTED = """
import pathlib, sys
# Drivers and replicas may.
if {"pyserve.control", "pyserve.gateway", "start"} & {*sys.orig_argv}:
    pathlib.Path(__file__).with_suffix(".imported").touch()
raise ModuleNotFoundError("it is none")
"""
_EXPORTER = """
from opentelemetry.sdk.trace.export import ConsoleSpanExporter
from exporter_parts import Out

def make():
    return ConsoleSpanExporter(out=Out())
"""
_EXPORTER_PARTS = """
import os

class Out:
    def write(self, text):
        with open(os.environ["SPANS"], "a") as file:
            file.write(text)

    def flush(self):
        pass
"""
_APPLICATION = """
import pyserve

@pyserve.deployment
def hello(request) -> str:
    return "hello"

app = hello.bind()
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "pyserve").mkdir()
    for name in _NAMES:
        (tmp_path / name).write_text(f'raise AssertionError("{name} was imported")\n')
    (tmp_path / "greeting.py").write_text(_APPLICATION)
    for name in _missing():
        (tmp_path / f"{name}.py").write_text(_NOTED)
    return tmp_path


def _missing() -> list[str]:
    return [name for name in _OPTIONAL if importlib.util.find_spec(name) is None]


def _get(environment: dict[str, str]) -> str:
    return httpx.get(f"http://{address_of(environment)}/", timeout=END_TIMEOUT_S).text


def test_there_are_modules_that_are_not_installed() -> None:
    assert {"sniffio", "multipart", "snappy"} & set(_missing())


def test_a_mesh_of_its_own_starts_beside_them(
    mesh_environment: dict[str, str], folder: Path
) -> None:
    address = ("--address", "127.0.0.1:0")
    with command(mesh_environment, "run", "greeting:app", *address, folder=folder) as running:
        running.shows(" is ready at ")
        assert "hello" == _get(mesh_environment)
        assert "was imported" not in running.output()


def test_controller_and_ingress_of_a_standing_mesh_start_beside_them(
    mesh_environment: dict[str, str], folder: Path
) -> None:
    address = ("--address", "127.0.0.1:0")
    # With every server that is made of somebody else's parts.
    servers = {"PYSERVE_METRICS_PORT": "0", "PYSERVE_DASHBOARD_ADDRESS": "127.0.0.1:0"}
    environment = {**mesh_environment, **servers}
    with command(environment, "start", *address, folder=folder) as mesh:
        mesh.shows("the mesh is ready at ")
        assert all(pids(environment))
        with command(environment, "run", "greeting:app", folder=folder) as running:
            running.shows(" is ready at ")
            assert "hello" == _get(environment)
            (ingress,) = status_of(environment)["ingresses"]
            for path in ("/", "/metrics", "/api/mesh.json"):
                httpx.get(f"http://{ingress['admin']}{path}", timeout=END_TIMEOUT_S)
        assert "was imported" not in mesh.output()
    assert [] == [each.name for each in folder.glob("*.imported")]


def test_what_a_setting_names_is_found_beside_them(
    mesh_environment: dict[str, str], folder: Path
) -> None:
    (folder / "exporting.py").write_text(_EXPORTER)
    (folder / "exporter_parts.py").write_text(_EXPORTER_PARTS)
    spans = folder / "spans"
    environment = {
        **mesh_environment,
        "PYSERVE_TRACING_EXPORTER": "exporting:make",
        "PYSERVE_TRACING_SAMPLING_RATIO": "1",
        "SPANS": str(spans),
        # Each span at once.
        "OTEL_BSP_SCHEDULE_DELAY": "50",
    }
    address = ("--address", "127.0.0.1:0")
    with command(environment, "start", *address, folder=folder) as mesh:
        mesh.shows("the mesh is ready at ")
        with command(environment, "run", "greeting:app", folder=folder) as running:
            running.shows(" is ready at ")
            assert "hello" == _get(environment)
        wait_until(spans.exists, END_TIMEOUT_S, "a span")
    assert [] == [each.name for each in folder.glob("*.imported")]
