"""A process says once that it may not share memory, and goes on without."""

from __future__ import annotations

import errno
import os

import pytest

from pyserve.config import NodeSettings
from pyserve.routing.shared_memory import shared_memory_bytes


def _refuse(_name: str) -> int:
    raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))


@pytest.mark.parametrize("size_bytes", [0, 1 << 20])
def test_forbidden_memory_is_reported_where_it_is_wanted(
    size_bytes: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    node = NodeSettings(node_id="n", shared_memory_bytes=size_bytes)
    assert size_bytes == shared_memory_bytes(node)
    assert [] == caplog.messages

    monkeypatch.setattr(os, "memfd_create", _refuse)
    assert size_bytes == shared_memory_bytes(node)
    found = [message.partition(";")[0] for message in caplog.messages]
    assert (size_bytes > 0) * [
        "large bodies go over sockets, because this process may not make memory to share "
        "(memfd_create: Operation not permitted)"
    ] == found
