"""Ports for programs that have to be told one."""

import random
import socket
from pathlib import Path

_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
_FIRST, _END = 10_000, 31_000


def free_port() -> int:
    """Return a free port of the loopback, which the system gives to no process that asks for any.

    One that was just given back may be another's before the program binds it: the system gives it
    to whoever connects somewhere.
    """
    end = min(_END, int(_RANGE.read_text().split()[0])) if _RANGE.exists() else _END
    while True:
        port = random.randrange(_FIRST, end)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        return port
