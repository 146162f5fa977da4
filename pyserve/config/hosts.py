"""Classifies the host of an address, as seen from this machine. Pure."""

from __future__ import annotations

import ipaddress


def is_loopback(host: str) -> bool:
    """Return whether only this machine reaches what is bound to ``host``."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"


def is_everywhere(host: str) -> bool:
    """Return whether each interface of this machine leads to what is bound to ``host``."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_unspecified
    except ValueError:
        return False


def local_host(host: str) -> str:
    """Return what this machine dials to reach what is bound to ``host``; brackets stay."""
    if not is_everywhere(host):
        return host
    if ":" not in host:
        return "127.0.0.1"
    return "[::1]" if host.startswith("[") else "::1"
