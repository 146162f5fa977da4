"""Values that a tree of calls holds are of no use after the request at its root."""

from __future__ import annotations

import pytest

import pyserve
from pyserve import _router
from pyserve.driver.session import Session
from tests.support.waiting import eventually
from tests.unit.replica.native_client import Client

pytestmark = pytest.mark.slow

# Goes by reference without another word.
SIZE = 9_000_000


class Stranger(Client):
    """A client of the ingress that knows nothing of handles."""

    def __init__(self, address: str) -> None:
        self._channel = _router.Channel(address)
        self._prefix = "/default."


async def test_what_a_foreign_request_left_behind_is_freed_at_its_end(
    session: Session, worker: pyserve.DeploymentHandle
) -> None:
    """Though the reference is kept, the value goes with the request that it was made for."""

    async def freed() -> bool:
        return int(await worker.held.remote()) == 0

    await eventually(freed, what="what other tests have dropped is freed")
    stranger = Stranger(session.client.status().addresses[0])
    body = f"[[{SIZE}],{{}}]".encode()
    outcome = await stranger.unary("Chief/keeps_value", body, subtype="json", framed=False)
    stranger.close()
    assert (0, b"1") == (outcome.code, outcome.message)
    await eventually(freed)


async def test_what_a_handle_asked_for_stays_beyond_the_call(
    chief: pyserve.DeploymentHandle, worker: pyserve.DeploymentHandle
) -> None:
    """Only requests from outside are roots: a caller that kept the reference can still use it."""
    assert 1 == await chief.keeps_value.remote(SIZE)
    assert 1 == await worker.held.remote()
    assert SIZE == await chief.forgets_value.remote()

    async def freed() -> bool:
        return int(await worker.held.remote()) == 0

    await eventually(freed)
