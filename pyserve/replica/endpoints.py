"""Where a replica listens, and the addresses it gives to others."""

from __future__ import annotations

import contextlib
import ipaddress
import logging
import os
import secrets
import socket
import tempfile
import traceback
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from pyserve.aio import Server
from pyserve.aio.certificates import MeshTls
from pyserve.config import MeshSettings, NodeSettings, host_port, is_everywhere
from pyserve.errors import MeshError
from pyserve.replica.loading import LoadError
from pyserve.replica.ports import DirectPorts
from pyserve.wire.v1 import mesh_pb2

_LOOPBACK = "127.0.0.1"
_LOGGER = logging.getLogger(__name__)


class Listeners:
    """The sockets of one replica: TCP, a Unix socket, and ports for balancers if there are any.

    Args:
        mesh: Directories, and where to bind.
        controller: ``host:port`` or ``unix:path``.
        tls: Certificates for TCP; None: plain.
    """

    def __init__(self, mesh: MeshSettings, controller: str, tls: MeshTls | None) -> None:
        self._mesh = mesh
        self._controller = controller
        self._tls = tls
        self._place = choose_socket(mesh.run_dir)
        self._direct_ports: DirectPorts | None = None

    @property
    def are_direct(self) -> bool:
        """Whether balancers outside of the mesh reach this replica."""
        return self._direct_ports is not None

    def listen(self, server: Server) -> mesh_pb2.Endpoints:
        """Bind the sockets for a server that has not started.

        Raises:
            LoadError: One cannot be bound.
        """
        node, controller = self._mesh.node, self._controller
        host = bind_host(node, controller)
        try:
            port = self._listen_tcp(server, host_port(host, 0))
            self._listen_near(server)
            direct = self._listen_directly(server, host)
        except MeshError as error:  # Of a folder, and it says what to do.
            raise LoadError(str(error), traceback.format_exc(), user_code=False) from error
        except (OSError, RuntimeError) as error:  # RuntimeError: as grpc has it.
            raise LoadError(
                f"the replica cannot listen on {host}: {error}; look at PYSERVE_BIND_HOST",
                traceback.format_exc(),
                user_code=False,
            ) from error
        advertised = advertised_host(node, controller, host)
        return mesh_pb2.Endpoints(
            address=host_port(advertised, port),
            unix_path=str(self._place.path) if self._place.is_bound else "",
            proves_itself=True,
            **{name: host_port(advertised, port) for name, port in direct.items()},
        )

    def close(self) -> None:
        """Leave the paths and ports, after the server has ended. Idempotent."""
        self._place.close()
        if self._direct_ports is not None:
            self._direct_ports.close()

    def abandon(self) -> None:
        """Remove the Unix socket only: the process ends, and nobody leases ports after it."""
        self._place.close()

    def _listen_tcp(self, server: Server, address: str) -> int:
        if self._tls is None:
            return server.add_insecure_port(address)
        return server.add_secure_port(address, self._tls.server_credentials)

    def _listen_near(self, server: Server) -> None:
        """Listen at the Unix socket; where that cannot be, routers of this machine use TCP too."""
        try:
            server.add_insecure_port(f"unix:{self._place.path}")  # for this user only
        except (OSError, RuntimeError) as error:
            _LOGGER.warning(
                "this replica listens on TCP only, because %s cannot be bound: %s; calls of this "
                "machine take longer that way",
                self._place.path,
                error,
            )
        else:
            self._place.is_bound = True

    def _listen_directly(self, server: Server, host: str) -> dict[str, int]:
        """Bind the ports for balancers outside of the mesh; return them by their endpoint."""
        settings = self._mesh.direct_ingress
        if not settings.enabled:
            return {}
        self._direct_ports = ports = DirectPorts(self._mesh.run_dir or self._mesh.home, settings)
        tls = None if self._tls is None else self._tls.server_credentials.native

        def bind(port: int, *, doors: bool) -> int:
            # Never shared with another process, as ports of grpc's servers are by default.
            return server.native.listen_tcp(host_port(host, port), tls, False, doors=doors)

        return {
            "direct_grpc": ports.lease(settings.grpc, partial(bind, doors=False)),
            "direct_http": ports.lease(settings.http, partial(bind, doors=True)),
        }


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
