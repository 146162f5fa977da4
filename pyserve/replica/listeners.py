"""The sockets of one replica, bound before its server starts, and the ports that balancers reach.

Balancers outside of the mesh reach the ports of replicas directly. The replicas of one machine
share a file. It records who has which port, and which ports were left so recently that a balancer
may still send another replica's requests there. In the end the bind decides, since other programs
do not read the file.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import logging
import os
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from pyserve.aio import Server
from pyserve.aio.certificates import MeshTls
from pyserve.config import MeshSettings, host_port
from pyserve.config.ingress import DirectIngressSettings, PortRange
from pyserve.errors import MeshError
from pyserve.folders import PrivateFolder
from pyserve.replica.endpoints import advertised_host, bind_host, choose_socket
from pyserve.replica.loading import LoadError
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


@dataclass(frozen=True, slots=True)
class _Entry:
    """A port that is, or was, a replica's.

    Attributes:
        pid: its owner; 0: it has been left.
        left_at: when it was left, on the machine's monotonic clock.
    """

    pid: int
    left_at: float


class PortLedger:
    """The shared file of one machine's replicas.

    Args:
        path: the file; made when it is missing.
        settings: how many ports to try, and how long one that was left stays unused.
        now: seconds on a clock that all processes of the machine share.
        lives: whether a process exists.
    """

    def __init__(
        self,
        path: Path,
        settings: DirectIngressSettings,
        *,
        now: Callable[[], float] = time.monotonic,
        lives: Callable[[int], bool] | None = None,
    ) -> None:
        self._path = path
        self._settings = settings
        self._now = now
        self._lives = lives or _lives

    def lease(self, ports: PortRange, bind: Callable[[int], object]) -> int:
        """Return the first port of the range that is free and that ``bind`` could take.

        Args:
            ports: where to look, lowest first.
            bind: binds one port; ``OSError`` if it cannot.

        Raises:
            MeshError: none could be had.
        """
        with self._locked() as entries:
            self._notice_deaths(entries)
            tries, resting, last = 0, 0, "none was tried"
            for port in range(ports.first, ports.last + 1):
                entry = entries.get(port)
                if entry is not None:
                    resting += not entry.pid
                    continue
                if tries == self._settings.port_tries:
                    break
                tries += 1
                try:
                    bind(port)
                except OSError as error:
                    last = str(error)
                    continue
                entries[port] = _Entry(os.getpid(), 0.0)
                return port
        raise MeshError(
            f"no port from {ports.first} to {ports.last} could be bound ({last}): {tries} were "
            f"tried and {resting} were left less than {self._settings.quarantine_s:g} s ago; widen "
            f"the range (PYSERVE_DIRECT_INGRESS_MIN/MAX_..._PORT) or end what holds it"
        )

    def release(self, port: int) -> None:
        """Leave a port; it is not leased again before its quarantine has passed. Idempotent."""
        with self._locked() as entries:
            if port in entries and entries[port].pid == os.getpid():
                entries[port] = _Entry(0, self._now())

    def _notice_deaths(self, entries: dict[int, _Entry]) -> None:
        """Begin the quarantine of ports whose owners died, and end those that are over."""
        now = self._now()
        for port, entry in list(entries.items()):
            if entry.pid and not self._lives(entry.pid):
                entries[port] = _Entry(0, now)
            elif not entry.pid and now - entry.left_at >= self._settings.quarantine_s:
                del entries[port]

    @contextlib.contextmanager
    def _locked(self) -> Iterator[dict[int, _Entry]]:
        """Hold the file, give its entries, and write them back at the end, also on an error."""
        descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "r+") as file:
            # Held for the time of a few binds; a process that dies lets go.
            fcntl.flock(file, fcntl.LOCK_EX)
            entries = _read(file.read())
            try:
                yield entries
            finally:
                file.seek(0)
                file.truncate()
                file.write(json.dumps({str(p): [e.pid, e.left_at] for p, e in entries.items()}))
                file.flush()


class DirectPorts:
    """The ports that one replica has leased, until ``close``.

    Args:
        directory: shared by the replicas of one machine.
        settings: the ranges.

    Raises:
        OSError, MeshError: the directory cannot be made, or is not this user's alone.
    """

    def __init__(self, directory: Path, settings: DirectIngressSettings) -> None:
        PrivateFolder(directory, make=True).close()
        self._ledger = PortLedger(directory / "ports.json", settings)
        self._leased: list[int] = []

    def lease(self, ports: PortRange, bind: Callable[[int], object]) -> int:
        """Lease one more port; see ``PortLedger.lease``."""
        port = self._ledger.lease(ports, bind)
        self._leased.append(port)
        return port

    def close(self) -> None:
        """Leave the ports, after their listeners have been closed. Idempotent."""
        while self._leased:
            # A mesh whose controller was killed leaves no folder, and no later user of it.
            with contextlib.suppress(FileNotFoundError):
                self._ledger.release(self._leased.pop())


def _read(text: str) -> dict[int, _Entry]:
    # A process that was killed while it wrote leaves half a text: the binds decide then.
    try:
        return {int(port): _Entry(*entry) for port, entry in json.loads(text or "{}").items()}
    except (ValueError, TypeError, AttributeError):
        return {}


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
