"""Errors of the driver's client when a controller does not behave as it should."""

from __future__ import annotations

import socket
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import grpc
import pytest

from pyserve.driver import client
from pyserve.driver.client import ControlClient
from pyserve.errors import MeshError, MeshUnavailable
from pyserve.types import MeshAddress


def test_a_controller_that_is_stopped_is_told_as_such(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "_ANSWER_TIMEOUT_S", 0.2)
    path = tmp_path / "s"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        address = MeshAddress(controller=f"unix:{path}", token=b"token")
        with closing(ControlClient(address)) as control, pytest.raises(MeshUnavailable) as raised:
            control.status()

    assert (
        f"asking for the status took longer than 0.2 s; the controller at unix:{path} is stopped "
        f"or overloaded: try again later"
    ) == str(raised.value)


def test_a_server_that_is_no_controller_is_told_as_such() -> None:
    with ThreadPoolExecutor(1) as threads:
        server = grpc.server(threads)
        address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
        server.start()
        found = MeshAddress(controller=address, token=b"token")
        try:
            with closing(ControlClient(found)) as control, pytest.raises(MeshError) as raised:
                control.status()
        finally:
            server.stop(None).wait(10)

    assert f"what answers at {address} is no controller of this version" in str(raised.value)
    assert "an ingress is none of a controller" in str(raised.value)
