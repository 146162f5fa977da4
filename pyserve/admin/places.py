"""Where an admin server listens, and the address it gives to others."""

from __future__ import annotations

from pyserve.config import NodeSettings, host_port, is_everywhere, is_loopback

_LOOPBACK = "127.0.0.1"


def listening_host(node: NodeSettings) -> str:
    """Return the host to listen on: loopback, unless this node is told to listen elsewhere."""
    return node.bind_host or _LOOPBACK


def advertised_address(node: NodeSettings, bound: str, reached_at: str = "") -> str:
    """Return the ``host:port`` at which others reach a socket bound to ``bound``.

    Args:
        node: Of this process.
        bound: ``host:port``.
        reached_at: The host by which other processes of the mesh reach this one, if it is known.
    """
    host, _, port = bound.rpartition(":")
    if node.advertise_host is not None:
        host = node.advertise_host
    elif is_everywhere(host):
        # This node's own name is the best guess if no other is given.
        is_known = reached_at and not is_loopback(reached_at)
        host = reached_at if is_known else node.node_id
    return host_port(host, int(port))
