"""A home of its own for each test that starts a mesh."""

from collections.abc import Iterator

import pytest

from tests.support.leftovers import environment_of_a_mesh


@pytest.fixture
def mesh_environment() -> Iterator[dict[str, str]]:
    with environment_of_a_mesh() as environment:
        yield environment
