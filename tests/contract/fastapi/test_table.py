"""The mesh answers as uvicorn does: same status, same headers, same bytes."""

from __future__ import annotations

import pytest

from tests.contract.fastapi.conftest import PREFIX
from tests.contract.fastapi.conversation import converse
from tests.contract.fastapi.exchange import ask
from tests.contract.fastapi.scripts import SCRIPTS
from tests.contract.fastapi.table import CASES
from tests.support.mesh import RunningMesh


@pytest.mark.parity("G-33")
@pytest.mark.parametrize("name", CASES)
def test_requests(name: str, reference: str, mesh: RunningMesh) -> None:
    expected = ask(reference, CASES[name])
    assert expected.status
    assert expected == ask(mesh.address, CASES[name], PREFIX)


@pytest.mark.parity("G-34")
@pytest.mark.parametrize("name", SCRIPTS)
def test_websockets(name: str, reference: str, mesh: RunningMesh) -> None:
    expected = converse(reference, SCRIPTS[name])
    assert expected == converse(mesh.address, SCRIPTS[name], PREFIX)
