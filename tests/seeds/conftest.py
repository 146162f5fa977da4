"""One mesh for the twins; each of them runs its own applications in it."""

from collections.abc import Iterator

import pytest

import pyserve


@pytest.fixture(scope="package", autouse=True)
def mesh() -> Iterator[None]:
    pyserve.start(address="127.0.0.1:0")
    try:
        yield
    finally:
        pyserve.shutdown()
