"""Scripts that own a mesh, and ``pyserve run``."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.mesh.commands import ROOT
from tests.mesh.metrics.scraping import scrape
from tests.mesh.start.processes import status_of
from tests.support.mesh import running_mesh

pytestmark = pytest.mark.slow
_SCRIPT = """
import pyserve
from tests.mesh.metrics.apps import Prices
from tests.mesh.metrics.scraping import scrape

handle = pyserve.run(Prices.bind())
assert 2.0 == handle.of.remote("pear").result(timeout_s=30)
(ingress,) = pyserve.status().ingresses
page = scrape(ingress.admin)
roles = page.labels("pyserve_info", "role")
assert {"driver", "controller", "ingress", "replica"} == roles, page.text
assert 1 == page.sum("pyserve_router_calls_total", deployment="Prices", caller="driver"), page.text
pyserve.shutdown()
print("as it should be")
"""


def test_the_handles_of_a_script_are_among_the_callers(mesh_environment: dict[str, str]) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", _SCRIPT],
        cwd=ROOT,
        env={**mesh_environment, "PYSERVE_METRICS_PORT": "0"},
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )
    assert "as it should be" in ran.stdout, ran.stderr


def test_a_run_in_the_foreground_shows_its_mesh() -> None:
    variables = {"PYSERVE_METRICS_PORT": "0"}
    with running_mesh("tests.mesh.metrics.apps:shop", environment=variables) as mesh:
        (ingress,) = status_of({"PYSERVE_HOME": str(mesh.home)})["ingresses"]
        page = scrape(ingress["admin"])
    assert {"controller", "ingress", "replica"} == page.labels("pyserve_info", "role")
