"""A mesh under an agent that puts interceptors before every gRPC channel of each process.

``opentelemetry-instrument`` and its like do so in ``sitecustomize``. Their interceptors hand out
generators where a stream was called, which have no ``cancel``, ``code`` or ``initial_metadata``.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import textwrap
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.mesh.commands import ROOT
from tests.mesh.commands import pyserve as command
from tests.support.mesh import RunningMesh, running_mesh
from tests.support.waiting import wait_until

pytestmark = pytest.mark.slow

_AGENT = """
    import grpc
    import grpc.aio

    class Traces(
        grpc.UnaryUnaryClientInterceptor,
        grpc.UnaryStreamClientInterceptor,
        grpc.StreamUnaryClientInterceptor,
        grpc.StreamStreamClientInterceptor,
    ):
        def intercept_unary_unary(self, continuation, details, request):
            return continuation(details, request)

        intercept_stream_unary = intercept_unary_unary

        def intercept_unary_stream(self, continuation, details, request):
            yield from continuation(details, request)

        intercept_stream_stream = intercept_unary_stream

    class TracesAio(
        grpc.aio.UnaryStreamClientInterceptor, grpc.aio.StreamStreamClientInterceptor
    ):
        async def intercept_unary_stream(self, continuation, details, request):
            call = await continuation(details, request)

            async def each():
                async for response in call:
                    yield response

            return each()

        intercept_stream_stream = intercept_unary_stream

    def traced(make):
        return lambda *args, **more: grpc.intercept_channel(make(*args, **more), Traces())

    def traced_aio(make):
        return lambda *args, **more: make(*args, interceptors=[TracesAio()], **more)

    for name in ("insecure_channel", "secure_channel"):
        setattr(grpc, name, traced(getattr(grpc, name)))
        setattr(grpc.aio, name, traced_aio(getattr(grpc.aio, name)))
"""
_APP = """
    import pyserve

    @pyserve.deployment
    class Speaker:
        async def __call__(self) -> str:
            print("a line of the speaker", flush=True)
            return "said"

    app = Speaker.bind()
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Has the agent and an application."""
    made = tmp_path_factory.mktemp("agent")
    (made / "sitecustomize.py").write_text(textwrap.dedent(_AGENT))
    (made / "speaking.py").write_text(textwrap.dedent(_APP))
    return made


@pytest.fixture(scope="module")
def environment(folder: Path) -> dict[str, str]:
    return {"PYTHONPATH": f"{folder}:{ROOT}"}


@pytest.fixture(scope="module")
def mesh(folder: Path, environment: dict[str, str]) -> Iterator[RunningMesh]:
    with running_mesh("speaking:app", environment=environment, folder=folder) as running:
        yield running


@pytest.fixture
def of_mesh(
    mesh: RunningMesh, environment: dict[str, str], mesh_environment: dict[str, str]
) -> dict[str, str]:
    return {**mesh_environment, **environment, "PYSERVE_HOME": str(mesh.home)}


def test_run_serves_and_shows_what_replicas_write(mesh: RunningMesh) -> None:
    with urllib.request.urlopen(f"http://{mesh.address}/", timeout=30) as answer:
        assert b"said" == answer.read()
    wait_until(lambda: "a line of the speaker" in mesh.output())


def test_deploy_and_logs_say_what_happens(
    mesh: RunningMesh, of_mesh: dict[str, str], folder: Path
) -> None:
    more = ("--name", "second", "--route-prefix", "/second")
    deployed = command("deploy", "speaking:app", *more, environment=of_mesh, cwd=folder)
    assert 0 == deployed.returncode, deployed.stderr
    assert "application 'second' is ready" in deployed.stdout
    with urllib.request.urlopen(f"http://{mesh.address}/second", timeout=30) as answer:
        assert b"said" == answer.read()
    of_second = ("logs", "Speaker", "--application", "second")
    wait_until(lambda: "a line of the" in command(*of_second, environment=of_mesh).stdout)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("status", "--watch"), "Speaker"),
        (("logs", "Speaker", "--application", "default", "--follow"), "a line of the speaker"),
    ],
)
def test_what_is_watched_ends_with_ctrl_c(
    mesh: RunningMesh,
    of_mesh: dict[str, str],
    tmp_path: Path,
    arguments: tuple[str, ...],
    expected: str,
) -> None:
    with urllib.request.urlopen(f"http://{mesh.address}/", timeout=30):
        pass
    output = tmp_path / "output"
    with output.open("wb") as sink:
        watching = subprocess.Popen(
            [sys.executable, "-m", "pyserve", *arguments],
            env=of_mesh,
            stdin=subprocess.DEVNULL,
            stdout=sink,
            stderr=subprocess.STDOUT,
        )
    try:
        wait_until(lambda: expected in output.read_text())
        watching.send_signal(signal.SIGINT)
        assert 130 == watching.wait(20)
    finally:
        watching.kill()
        watching.wait()
    assert "Traceback" not in output.read_text()
