"""Every contract test gets a network for each pair of server and client."""

from collections.abc import AsyncIterator

import pytest

from tests.contract.aio.sides import SIDES, Network, Side


@pytest.fixture(params=SIDES, ids=lambda side: f"{side.name}_server")
def server_side(request: pytest.FixtureRequest) -> Side:
    """The implementation that serves."""
    side: Side = request.param
    return side


@pytest.fixture(params=SIDES, ids=lambda side: f"{side.name}_client")
def client_side(request: pytest.FixtureRequest) -> Side:
    """The implementation that calls."""
    side: Side = request.param
    return side


@pytest.fixture
async def network(server_side: Side, client_side: Side) -> AsyncIterator[Network]:
    """A network of the two sides, closed after the test."""
    network = Network(server_side, client_side)
    yield network
    await network.close()
