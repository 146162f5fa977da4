"""``pyserve doctor`` finds what is staged in a mesh, and nothing in one that is well."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support.mesh import RunningMesh, running_mesh

pytestmark = pytest.mark.slow
PYSERVE = str(Path(sys.executable).with_name("pyserve"))
APP = "tests.mesh.logs.apps:app"
# Replicas alone: this is read before their first line.
SKEW = """
import sys, time
if "pyserve.replica" in sys.orig_argv:
    true_time = time.time
    time.time = lambda: true_time() + 3600
"""


def doctor(mesh: RunningMesh | Path, *arguments: str, **variables: str) -> tuple[int, str]:
    home = mesh if isinstance(mesh, Path) else mesh.home
    environment = {**os.environ, "PYSERVE_HOME": str(home), **variables}
    done = subprocess.run(
        [PYSERVE, "doctor", *arguments],
        check=False,
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert "" == done.stderr
    return done.returncode, done.stdout


def wrongs(mesh: RunningMesh | Path, **variables: str) -> dict[str, list[dict[str, str]]]:
    """Return what is wrong, by its subject; each has to have a remedy."""
    status, text = doctor(mesh, "--json", **variables)
    answer: dict[str, Any] = json.loads(text)
    found: dict[str, list[dict[str, str]]] = {}
    for each in answer["findings"]:
        if each["state"] == "wrong":
            assert each["remedy"]
            found.setdefault(each["subject"], []).append(each)
    assert (not found, 1 if found else 0) == (answer["ok"], status)
    return found


def replicas(mesh: RunningMesh) -> dict[str, int]:
    environment = {**os.environ, "PYSERVE_HOME": str(mesh.home)}
    text = subprocess.check_output([PYSERVE, "status", "--json"], env=environment, text=True)
    deployments = json.loads(text)["applications"]["default"]["deployments"]
    return {
        replica["replica_id"]: replica["pid"]
        for deployment in deployments.values()
        for replica in deployment["replicas"]
    }


@contextmanager
def stopped(pid: int) -> Iterator[None]:
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def test_a_mesh_that_is_well_has_nothing_wrong_and_one_with_faults_has_each_of_them() -> None:
    with running_mesh(APP) as mesh:
        status, text = doctor(mesh)
        assert 0 == status, text
        names = replicas(mesh)
        for name in names:
            assert f"ok      replicas: {name} at 127.0.0.1:" in text
            assert f"ok      replicas: {name} at unix:" in text
        assert "ok      ingresses: the ingress on " in text
        assert "ok      clocks: 3 clocks agree" in text
        assert text.endswith("nothing is wrong\n")

        name, pid = next(iter(names.items()))
        with stopped(pid):
            held = wrongs(mesh)["loops"]
        assert {True} == {name in each["text"] for each in held}
        assert 2 == len(held)

        token = next(mesh.home.glob("**/token"))
        token.chmod(0o644)
        assert "others may read it" in wrongs(mesh)["token"][0]["text"]
        token.chmod(0o600)

        socket = next(mesh.home.glob("**/replica-*.sock"))
        kept = socket.with_suffix(".kept")
        socket.rename(kept)
        (lost,) = wrongs(mesh)["replicas"]
        assert str(socket) in lost["text"]
        assert "cannot be reached" in lost["text"]
        kept.rename(socket)

        assert "otlp" in wrongs(mesh, OTEL_EXPORTER_OTLP_ENDPOINT="http://127.0.0.1:1")
        assert {} == wrongs(mesh)


def test_clocks_that_are_apart_are_found(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(SKEW)
    with running_mesh(APP, environment={"PYTHONPATH": str(tmp_path)}) as mesh:
        found = wrongs(mesh)["clocks"]
        assert {"clocks"} == set(wrongs(mesh))
    assert 2 == len(found)
    for each in found:
        assert " 3600 s ahead" in each["text"] or " 3599 s ahead" in each["text"]


def test_a_controller_that_does_not_answer_is_found(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("ab" * 32)
    token.chmod(0o600)
    variables = {"PYSERVE_CONTROLLER": "127.0.0.1:1", "PYSERVE_TOKEN_FILE": str(token)}
    found = wrongs(tmp_path, **variables)
    assert {"controller"} == set(found)
    assert "127.0.0.1:1" in found["controller"][0]["text"]


def test_without_a_mesh_it_looks_at_the_machine(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    status, text = doctor(tmp_path, PYSERVE_INGRESS_PORT="0")
    assert 0 == status, text
    assert f"no mesh runs in {tmp_path}" in text
