"""The malloc of a replica's process keeps what large messages leave, unless somebody says no."""

from __future__ import annotations

import ctypes

import pytest

import pyserve
from tests.support.mesh import running_mesh
from tests.support.session import attached

pytestmark = pytest.mark.slow


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "mallinfo2"), reason="malloc is not glibc's")
async def test_a_variable_leaves_malloc_as_it_is() -> None:
    with running_mesh("tests.mesh.plain.freed_memory:app") as mesh, attached(mesh.home):
        kept, untouched = await pyserve.DeploymentHandle("Both", "default").ask.remote()
    assert 0 == kept
    assert untouched >= 4 << 20
