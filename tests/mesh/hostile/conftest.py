"""One mesh for all tests of this folder."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from benchmarks.hostile.mesh import attacked_mesh


@pytest.fixture(scope="package")
def address() -> Iterator[tuple[str, int]]:
    """Start the mesh; return host and port of its ingress."""
    with attacked_mesh() as address:
        host, _, port = address.rpartition(":")
        yield host, int(port)
