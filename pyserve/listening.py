"""TCP sockets that are bound in one process and listened at in others.

A held socket outlives the processes that listen on it: connections that come while none of them
accepts wait in the kernel's queue for the next process. Nothing here listens. Until the first
process does, connections are refused, as on an unused port.
"""

from __future__ import annotations

import errno
import socket
from collections.abc import Sequence

from pyserve.errors import MeshError


class HeldSockets:
    """The sockets of some addresses, from ``open`` to ``close``; may be opened again.

    Args:
        addresses: ``host:port`` each, port 0 picks one, which is kept from then on. A loopback
            address of a family that this machine does not have is left out if another remains.
    """

    def __init__(self, addresses: Sequence[str]) -> None:
        self._addresses = tuple(addresses)
        self._sockets: list[socket.socket] = []

    def open(self) -> Sequence[int]:
        """Bind what is not bound yet; return the descriptors, which stay this object's.

        Raises:
            MeshError: an address cannot be had; the text says why and what to do.
        """
        if not self._sockets:
            self._sockets = bind_all(self._addresses)
            self._addresses = tuple(map(_name, self._sockets))
        return [each.fileno() for each in self._sockets]

    def close(self) -> None:
        """Hold them no more: when the last process has stopped listening, nothing waits."""
        for each in self._sockets:
            each.close()
        self._sockets.clear()


def bind_all(addresses: Sequence[str]) -> list[socket.socket]:
    """Return a bound socket for each address, but for families that this machine does not have.

    Raises:
        MeshError: an address cannot be had, or none is left; then nothing is bound.
    """
    bound: list[socket.socket] = []
    try:
        for left, address in zip(range(len(addresses))[::-1], addresses, strict=True):
            try:
                bound.append(_bind(address))
            except OSError as error:
                missing = error.errno in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)
                if not (missing and (bound or left)):
                    raise MeshError(_cannot_listen(address, error)) from error
    except BaseException:
        for each in bound:
            each.close()
        raise
    return bound


def _bind(address: str) -> socket.socket:
    """Bind the first of the host's addresses that works."""
    host, _, port = address.rpartition(":")
    found = socket.getaddrinfo(
        host.strip("[]"), int(port), type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )
    last = OSError(errno.EADDRNOTAVAIL, "it has no address")
    for family, kind, protocol, _, target in found:
        try:
            return _bind_one(family, kind, protocol, target)
        except OSError as error:
            last = error
    raise last


def _bind_one(
    family: socket.AddressFamily, kind: socket.SocketKind, protocol: int, target: tuple[object, ...]
) -> socket.socket:
    opened = socket.socket(family, kind, protocol)
    try:
        # Connections in TIME_WAIT do not stand in the way.
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6 and target[0] != "::":
            opened.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        opened.bind(target)
    except BaseException:
        opened.close()
        raise
    return opened


def _name(bound: socket.socket) -> str:
    host, port = bound.getsockname()[:2]
    return f"[{host}]:{port}" if bound.family == socket.AF_INET6 else f"{host}:{port}"


def _cannot_listen(address: str, error: OSError) -> str:
    port = address.rpartition(":")[2]
    match error.errno:
        case errno.EADDRINUSE:
            return (
                f"port {port} is taken: another process listens at {address}; end it, or choose "
                "another address (--address HOST:PORT, port 0 picks a free one)"
            )
        case errno.EACCES:
            return f"listening at {address} is not permitted; choose a port above 1023"
        case _:
            return f"the ingress cannot listen at {address}: {error.strerror or error}"
