"""The models of the services multiply small matrices, for which more threads are only slower."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from threadpoolctl import threadpool_limits


@pytest.fixture(scope="package", autouse=True)
def one_thread() -> Iterator[None]:
    """Let BLAS use the thread that calls it: tests already run in as many as there are cores."""
    with threadpool_limits(1):
        yield
