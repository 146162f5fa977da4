"""Where the ingresses of a mesh are, for an HAProxy that falls back to them. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from pyserve.config import is_everywhere, is_loopback, local_host
from pyserve.gateway.haproxy.options import IngressPlace
from pyserve.wire.v1 import control_pb2

# An ingress goes on without its controller, and is at the next one within a second or two; on a
# busy machine it takes longer.
KEPT_S = 30.0


class Ingresses:
    """Remembers where ingresses were: a controller that has just started knows of none."""

    def __init__(self) -> None:
        # By machine: the address, and when it was last heard of.
        self._seen: dict[str, tuple[str, float]] = {}
        self._speaks_tls = False

    def place(self, reply: control_pb2.StatusReply, controller: str, now: float) -> IngressPlace:
        """Return where they are, those that were there a moment ago included.

        Args:
            reply: What the controller says.
            controller: Where it is for who asks, ``host:port`` or ``unix:PATH``.
            now: The time.
        """
        if reply.addresses:
            self._speaks_tls = reply.ingress.speaks_tls
        for machine, address in _by_machine(reply.addresses, controller).items():
            self._seen[machine] = (address, now)
        self._seen = {
            machine: (address, seen)
            for machine, (address, seen) in self._seen.items()
            if now - seen < KEPT_S
        }
        addresses = tuple(address for address, _ in self._seen.values())
        return IngressPlace(addresses=addresses, speaks_tls=self._speaks_tls)


def _by_machine(addresses: Iterable[str], controller: str) -> dict[str, str]:
    """Return one address for each machine; a process listens at all of them, and at each alike."""
    remote = "" if controller.startswith("unix:") else controller.rpartition(":")[0]
    found: dict[str, str] = {}
    for address in addresses:
        host, _, port = address.rpartition(":")
        if is_everywhere(host):
            host = remote or local_host(host)
        machine = "loopback" if is_loopback(host) else host
        found.setdefault(machine, f"{host}:{port}")
    return found
