"""One mesh for all tests of this folder, whose spans come to this process."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.mesh import RunningMesh, running_mesh
from tests.support.otlp import Receiver, otlp_receiver


@pytest.fixture(scope="package")
def receiver() -> Iterator[Receiver]:
    with otlp_receiver() as found:
        yield found


@pytest.fixture(scope="package")
def mesh(receiver: Receiver) -> Iterator[RunningMesh]:
    """Run ``apps.py``."""
    with running_mesh("tests.mesh.traces.apps:app", environment=receiver.environment()) as found:
        yield found
