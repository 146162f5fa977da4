"""A mesh without an ingress: handles reach it, nobody else does."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.mesh.commands import ROOT

pytestmark = pytest.mark.slow
_TIMEOUT_S = 60.0
_SCRIPT = """
import pyserve
from tests.mesh.ingress.apps import Child

pyserve.start(proxy_location="Disabled")
handle = pyserve.run(Child.bind(), route_prefix="/child")
print(pyserve.status().addresses, handle.remaining.remote().result(10))
pyserve.shutdown()
"""


@pytest.mark.parity("G-40")
def test_disabled_means_that_nothing_listens(mesh_environment: dict[str, str]) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", _SCRIPT],
        cwd=ROOT,
        env=mesh_environment,
        capture_output=True,
        text=True,
        timeout=_TIMEOUT_S,
        check=False,
    )

    assert (0, "() None\n") == (ended.returncode, ended.stdout), ended.stderr
