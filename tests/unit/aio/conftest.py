"""Puts the in-memory ring in the place of the native one."""

import pytest

from pyserve import _router
from pyserve.bridge import rust
from tests.unit.aio.fake_ring import FakeEndpoint, FakeServer


@pytest.fixture
def fake_ring(monkeypatch: pytest.MonkeyPatch) -> None:
    """Endpoints and servers that this test makes are fakes."""
    monkeypatch.setattr(_router, "Endpoint", FakeEndpoint)
    monkeypatch.setattr(rust, "Server", FakeServer)
