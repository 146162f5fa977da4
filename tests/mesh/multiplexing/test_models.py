"""Models in replicas, from the option of a handle to the loader."""

import signal
import subprocess
import sys
import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import grpc
import httpx
import pytest

from services.echo import echo_pb2, echo_pb2_grpc
from tests.mesh.commands import ROOT, foreground

pytestmark = pytest.mark.slow

HEAD = """
    import pyserve
    from tests.mesh.multiplexing.apps import Models

    pyserve.start(address="127.0.0.1:0")

    def for_model(handle, model_id):
        return handle.options(multiplexed_model_id=model_id)

    def get(response):
        return response.result(timeout_s=20)
"""


@pytest.fixture
def drive(tmp_path: Path, mesh_environment: Mapping[str, str]):
    def run(script: str) -> None:
        file = tmp_path / "driver.py"
        file.write_text(textwrap.dedent(HEAD) + textwrap.dedent(script))
        done = subprocess.run(
            [sys.executable, "-W", "error", str(file)],
            cwd=tmp_path,
            env={**mesh_environment, "PYTHONPATH": str(ROOT)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=50,
            check=False,
        )
        assert 0 == done.returncode, done.stdout

    return run


@pytest.mark.parity("S-28")
@pytest.mark.parity("S-34")
@pytest.mark.parity("S-37")
def test_a_model_reaches_handlers_streams_and_batches_and_is_preloaded(drive) -> None:
    drive("""
        handle = pyserve.run(Models.options(num_replicas=1).bind())
        assert ["warm"] == get(handle.loaded.remote())
        assert "model warm" == get(for_model(handle, "warm").remote())[0]
        assert ["warm"] == get(handle.loaded.remote())

        stream = for_model(handle.stream, "a").options(stream=True).remote()
        assert ["model a", "model a"] == list(stream)
        pending = [for_model(handle.together, f"v{n % 2}").remote(n) for n in range(8)]
        found = [get(response) for response in pending]
        assert [(n, f"model v{n % 2}") for n in range(8)] == [each[:2] for each in found]
        assert max(size for _, _, size in found) > 1
        assert ["warm", "a"] == get(handle.loaded.remote())[:2]
    """)


@pytest.mark.parity("S-31")
def test_calls_go_to_the_replica_that_has_their_model(drive) -> None:
    """Two replicas: the one that loaded a model gets every further call for it."""
    drive("""
        handle = pyserve.run(Models.bind())
        places = [{get(for_model(handle, model).remote())[1] for _ in range(15)}
                  for model in ("a", "b")]
        assert all(len(place) == 1 for place in places), places
    """)


def test_a_wrong_id_has_one_status_at_each_door_and_one_line(
    mesh_environment: dict[str, str],
) -> None:
    """On the first call, and while its failure is remembered; and so has none at all."""
    with foreground(mesh_environment, "tests.mesh.multiplexing.apps:named") as running:
        url = f"http://{running.address}/"

        def over_http(**headers: str) -> tuple[int, str]:
            found = httpx.get(url, headers=headers, timeout=20)
            return found.status_code, found.text.strip()

        with grpc.insecure_channel(running.address) as channel:
            echo = echo_pb2_grpc.EchoStub(channel).Echo

            def over_grpc(*metadata: tuple[str, str]) -> tuple[grpc.StatusCode, str]:
                with pytest.raises(grpc.RpcError) as caught:
                    echo(echo_pb2.EchoRequest(), metadata=metadata, timeout=20)
                call: Any = caught.value
                return call.code(), call.details()

            assert "Deutsch" == over_http(serve_multiplexed_model_id="de-en")[1]
            for _ in range(2):
                assert (404, "there is no model 'xx'") == over_http(serve_multiplexed_model_id="xx")
                assert (grpc.StatusCode.NOT_FOUND, "there is no model 'xx'") == over_grpc(
                    ("multiplexed_model_id", "xx")
                )
                status, text = over_http()
                assert 400 == status
                assert "send its id in the header serve_multiplexed_model_id" in text
                assert (grpc.StatusCode.INVALID_ARGUMENT, text) == over_grpc()
        running.process.send_signal(signal.SIGINT)
        assert 0 == running.process.wait(40)
        said = running.output()
    assert 1 == said.count("Named.get_model: there is no model 'xx' (KeyError: 'xx')")
    assert 1 == said.count("Named.get_model: a request names no model")
    assert "Traceback" not in said
