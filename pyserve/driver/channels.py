"""Channels of a driver: routed in this process, over a table that follows the controller."""

from __future__ import annotations

from pyserve import aio
from pyserve.config import NodeSettings
from pyserve.control.discovery import MeshAddress
from pyserve.errors import NotYetSupported
from pyserve.types import DeploymentKey


class Channels:
    """Opens channels to deployments; the first one starts the feed of the table."""

    def __init__(self, address: MeshAddress, node: NodeSettings) -> None:
        self._address = address
        self._node = node

    def open(self, key: DeploymentKey) -> aio.Channel:
        """Return a channel to one deployment."""
        raise NotYetSupported(f"{key}")

    def close(self) -> None:
        """End the feed. Idempotent."""
