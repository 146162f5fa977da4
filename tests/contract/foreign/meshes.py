"""Meshes for foreign clients, which have to be without a call once the clients are done."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pyserve.config import read_settings
from pyserve.control.discovery import find_mesh
from pyserve.driver.client import ControlClient
from pyserve.driver.status import read_status
from tests.support.mesh import RunningMesh, running_mesh
from tests.support.waiting import wait_until


@contextmanager
def settling_mesh(target: str) -> Iterator[RunningMesh]:
    """Run a mesh until the block ends; then no call may be left in its ingress."""
    with running_mesh(target) as mesh:
        yield mesh
        address = find_mesh(read_settings({"PYSERVE_HOME": str(mesh.home)}))
        assert address is not None
        control = ControlClient(address)
        try:
            wait_until(
                lambda: read_status(control.status()).ingress.in_flight == 0,
                what="the ingress holds no call",
            )
        finally:
            control.close()
