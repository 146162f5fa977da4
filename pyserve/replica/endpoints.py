"""Where a replica listens, and the address it gives to others."""

from __future__ import annotations

import contextlib
import ipaddress
import os
import secrets
import socket
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

from pyserve.config import NodeSettings, is_everywhere

_LOOPBACK = "127.0.0.1"


@dataclass(slots=True)
class SocketPlace:
    """The path of this replica's Unix socket, removed by ``close`` in this process only.

    Attributes:
        is_bound: it listens there.
    """

    path: Path
    is_bound: bool = False
    _own_directory: Path | None = None
    _pid: int = field(default_factory=os.getpid)

    def close(self) -> None:
        """Remove the socket, and the directory if it was made for it. Idempotent."""
        if os.getpid() != self._pid:  # A fork of user code must not take its parent's socket.
            return
        self.path.unlink(missing_ok=True)
        if self._own_directory is not None:
            with contextlib.suppress(OSError):  # It was removed, or has other users.
                self._own_directory.rmdir()


def choose_socket(run_dir: Path | None) -> SocketPlace:
    """Return a fresh path in the mesh's directory, or in a private one (0700) of its own."""
    name = f"replica-{secrets.token_hex(8)}.sock"
    if run_dir is not None:
        return SocketPlace(run_dir / name)
    directory = Path(tempfile.mkdtemp(prefix="pyserve-"))
    return SocketPlace(directory / name, _own_directory=directory)


def bind_host(node: NodeSettings, controller: str) -> str:
    """Return the host to listen on: loopback, or everywhere when the controller is not here."""
    if node.bind_host is not None:
        return node.bind_host
    return _LOOPBACK if _is_local(controller) else "0.0.0.0"  # noqa: S104  # design decision 13


def advertised_host(node: NodeSettings, controller: str, bound: str) -> str:
    """Return the host that others should dial to reach a socket bound to ``bound``."""
    if node.advertise_host is not None:
        return node.advertise_host
    if not is_everywhere(bound):
        return bound
    return _LOOPBACK if _is_local(controller) else _local_address_towards(controller)


def _is_local(controller: str) -> bool:
    if controller.startswith("unix:"):
        return True
    host = controller.rpartition(":")[0].strip("[]")
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _local_address_towards(controller: str) -> str:
    host, _, port = controller.rpartition(":")
    family, kind, *_, target = socket.getaddrinfo(
        host.strip("[]"), int(port), type=socket.SOCK_DGRAM
    )[0]
    # Connecting a datagram socket sends nothing; it only asks the routing table.
    with socket.socket(family, kind) as probe:
        probe.connect(target)
        address: str = probe.getsockname()[0]
    return f"[{address}]" if family == socket.AF_INET6 else address
