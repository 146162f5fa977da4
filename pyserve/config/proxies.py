"""Hosts of addresses, and the proxies whose word on a client's address is taken."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Mapping

from pyserve.config import variables as read
from pyserve.config.validation import refuse

# An address with or without its first bits; a mask, a zone or a name says too much.
_NETWORK = re.compile(r"[0-9A-Fa-f:.]+(/[0-9]{1,3})?")
_ALLOWED = (
    "networks of proxies with commas between them, each an address or one and the bits that its "
    "addresses begin with, such as 10.0.0.0/8 or fd00::/8, and no bit behind them"
)


def read_trusted_proxies(variables: Mapping[str, str]) -> tuple[str, ...]:
    """Read ``PYSERVE_TRUSTED_PROXIES``.

    Raises:
        OptionError: one of them is no network.
    """
    name = "PYSERVE_TRUSTED_PROXIES"
    return check_networks(name, read.words(variables, name))


def read_proxy_protocol(variables: Mapping[str, str], trusted: tuple[str, ...]) -> bool:
    """Read ``PYSERVE_PROXY_PROTOCOL``: whether trusted proxies speak its version 2.

    Raises:
        OptionError: the value is neither ``off`` nor ``v2``, or there are no trusted proxies.
    """
    name = "PYSERVE_PROXY_PROTOCOL"
    value = variables.get(name) or "off"
    if value not in ("off", "v2"):
        # Proxies that support version 1 support 2 too, which has a length and a signature.
        raise refuse(name, value, "off, or v2 (version 1 is not read; let the proxy send 2)")
    if value == "v2" and not trusted:
        raise refuse(name, value, "v2 with PYSERVE_TRUSTED_PROXIES, whose headers are read; or off")
    return value == "v2"


def check_networks(field: str, networks: Iterable[str]) -> tuple[str, ...]:
    """Return networks as the native side reads them.

    Raises:
        OptionError: one of them is not a network.
    """
    return tuple(_network(field, network) for network in networks)


def _network(field: str, text: str) -> str:
    try:
        network = ipaddress.ip_network(text, strict=True)
    except ValueError:
        raise refuse(field, text, _ALLOWED) from None
    mapped = isinstance(network, ipaddress.IPv6Network) and network.network_address.ipv4_mapped
    if not _NETWORK.fullmatch(text) or mapped:
        raise refuse(field, text, _ALLOWED)
    return str(network)


# Classifies the host of an address, as seen from this machine.


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
