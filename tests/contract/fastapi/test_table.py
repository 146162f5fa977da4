"""The mesh answers as uvicorn does: same status, same headers, same bytes."""

from __future__ import annotations

import pytest

from tests.contract.fastapi.conftest import PREFIX
from tests.contract.fastapi.conversation import converse
from tests.contract.fastapi.exchange import ask
from tests.contract.fastapi.scripts import CLOSED_HERE, SCRIPTS
from tests.contract.fastapi.table import CASES
from tests.support.mesh import RunningMesh


@pytest.mark.parity("G-33")
@pytest.mark.parametrize("name", CASES)
def test_requests(name: str, reference: str, mesh: RunningMesh) -> None:
    expected = ask(reference, CASES[name])
    found = ask(mesh.address, CASES[name], PREFIX)
    assert expected.status
    if not expected.header(b"content-length"):
        # It came in chunks. The ingress counts instead where all of it is there at once.
        assert found.header(b"content-length") in ([], [str(len(found.body)).encode()])
        found = found.without_length()
    assert expected == found


@pytest.mark.parity("G-34")
@pytest.mark.parametrize("name", SCRIPTS)
def test_websockets(name: str, reference: str, mesh: RunningMesh) -> None:
    expected = converse(reference, SCRIPTS[name])
    expected.closed = CLOSED_HERE.get(name, expected.closed)
    assert expected == converse(mesh.address, SCRIPTS[name], PREFIX)
