"""Every limit of the settings reaches the native side, under the name that it has there."""

from __future__ import annotations

import functools
import socket
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from pyserve.bridge import rust
from pyserve.config import read_settings
from pyserve.config.ingress import IngressSettings
from pyserve.gateway import IngressServer
from pyserve.types import MeshAddress

# Where each goes, and a value that no default is.
_NATIVE: dict[str, tuple[str, str, Any]] = {
    "root_path": ("Ingress", "root_path", "/gateway"),
    "connections_max": ("IngressLimits", "connections_max", 7),
    "idle_bytes_max": ("IngressLimits", "idle_bytes_max", 6),
    "streams_max": ("IngressLimits", "streams_max", 8),
    "io_threads": ("Ingress", "io_threads", 3),
    "header_bytes_max": ("IngressLimits", "header_bytes_max", 4321),
    "body_bytes_max": ("IngressLimits", "body_bytes_max", 5432),
    "message_bytes_max": ("IngressLimits", "message_bytes_max", 6543),
    "refuses_unknown_fields": ("IngressLimits", "refuses_unknown_fields", True),
    "client_timeout_s": ("IngressLimits", "idle_timeout_s", 98.0),
    "header_timeout_s": ("IngressLimits", "header_timeout_s", 11.0),
    "body_timeout_s": ("IngressLimits", "body_timeout_s", 12.0),
    "keep_alive_timeout_s": ("IngressLimits", "keep_alive_timeout_s", 13.0),
    "server_timeout_s": ("RoutingTable", "idle_timeout_s", 14.0),
    "connect_timeout_s": ("RoutingTable", "connect_timeout_s", 15.0),
    "request_timeout_s": ("IngressLimits", "request_timeout_s", 16.0),
    "cors_origins": ("IngressLimits", "cors_origins", ("https://shop.example",)),
    "trusted_proxies": ("Ingress", "trusted_proxies", ("192.0.2.0/24",)),
    "proxy_protocol": ("Ingress", "proxy_protocol", True),
}
# They act in Python: when a mesh starts, and in a drain.
_IN_PYTHON = {"port", "location", "drain_s", "hard_stop_after_s"}


@pytest.mark.parity("S-63")
@pytest.mark.parity("S-64")
@pytest.mark.parity("S-65")
@pytest.mark.parity("S-66")
@pytest.mark.parity("S-67")
@pytest.mark.parity("G-45")
async def test_no_limit_is_forgotten(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    given: dict[tuple[str, str], object] = {}
    for name in ("RoutingTable", "IngressLimits", "Ingress"):
        monkeypatch.setattr(rust, name, _recording(name, given))
    settings = IngressSettings(**{name: value for name, (_, _, value) in _NATIVE.items()})

    # An ingress that is not started closes no socket, so the test lends it one.
    with socket.create_server(("127.0.0.1", 0)) as listener:
        IngressServer(
            [],
            controller=MeshAddress(controller="unix:/nowhere", token=b"token"),
            node=read_settings({}).node,
            run_dir=tmp_path,
            settings=settings,
            held=[listener],
        )

    assert {each.name for each in fields(IngressSettings)} == {*_NATIVE, *_IN_PYTHON}
    expected = {(kind, argument): value for kind, argument, value in _NATIVE.values()}
    assert expected == {key: given[key] for key in expected}


def _recording(name: str, given: dict[tuple[str, str], object]) -> Any:
    real = getattr(rust, name)

    @functools.wraps(real, updated=())
    def make(*arguments: object, **options: object) -> object:
        given.update({(name, option): value for option, value in options.items()})
        return real(*arguments, **options)

    return make
