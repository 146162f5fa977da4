"""The sockets of one replica, bound before its server starts."""

from __future__ import annotations

import logging
import traceback
from functools import partial

from pyserve.aio import Server
from pyserve.aio.certificates import MeshTls
from pyserve.config import MeshSettings, host_port
from pyserve.errors import MeshError
from pyserve.replica.endpoints import advertised_host, bind_host, choose_socket
from pyserve.replica.loading import LoadError
from pyserve.replica.ports import DirectPorts
from pyserve.wire.v1 import mesh_pb2

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
