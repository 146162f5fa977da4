"""Keeps the replica apart from processes that user code forks: its signals and its membership.

A fork inherits the handlers and the wake-up descriptor, which it shares with its parent: the
parent would take a SIGTERM for the child as its own, and drain. So signals are held back while
a fork is made, and the child gets Python's own handlers before they are let through.

It inherits the connection to the controller too. While a child had it open, the controller would
not see that the replica has died. ``pyserve.bridge`` shuts the descriptors of the data plane.
"""

from __future__ import annotations

import contextlib
import ipaddress
import os
import signal
import socket
import threading
from pathlib import Path

from pyserve.bridge import shut

_SIGNALS = (signal.SIGTERM, signal.SIGINT)


class _Held(threading.local):
    """What a forking thread had blocked before."""

    mask: frozenset[int] = frozenset()


def separate_forks(controller: str) -> None:
    """See to it, for the rest of the process's life, that forks are no part of the replica.

    Args:
        controller: Where it is, ``host:port`` or ``unix:path``.
    """
    held = _Held()

    def before() -> None:
        held.mask = frozenset(signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS))

    def after_in_parent() -> None:
        signal.pthread_sigmask(signal.SIG_SETMASK, held.mask)

    def after_in_child() -> None:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.pthread_sigmask(signal.SIG_SETMASK, held.mask)
        _shut_connections_to(controller)

    os.register_at_fork(
        before=before, after_in_parent=after_in_parent, after_in_child=after_in_child
    )


def _shut_connections_to(controller: str) -> None:
    for name in [entry.name for entry in Path("/proc/self/fd").iterdir()]:
        with contextlib.suppress(OSError):  # No socket, or one without a peer.
            connection = socket.socket(fileno=int(name))
            try:
                is_controllers = _is_at(connection.getpeername(), controller)
            finally:
                connection.detach()
            if is_controllers:
                shut(int(name))


def _is_at(peer: object, controller: str) -> bool:
    """Tell whether an address is the controller's; of a name only the port can be compared."""
    if isinstance(peer, str):
        return f"unix:{peer}" == controller
    host, _, port = controller.rpartition(":")
    if not isinstance(peer, tuple) or str(peer[1]) != port:
        return False
    try:
        return ipaddress.ip_address(host.strip("[]")) == ipaddress.ip_address(peer[0])
    except ValueError:
        return True
