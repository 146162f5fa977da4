"""The nodes of the cluster, as far as a launcher may read them. Thin."""

from __future__ import annotations

import logging

from pyserve.launch.on_kubernetes.api import Api, ApiError
from pyserve.launch.on_kubernetes.reading import NodeView, read_node

_LOGGER = logging.getLogger(__name__)
_NOT_FOUND = 404


class Nodes:
    """Asks for nodes one by one, since a launcher need not have the right to list them.

    Attributes:
        known: The last known state, by name.
    """

    def __init__(self, api: Api) -> None:
        self._api = api
        self.known: dict[str, NodeView] = {}

    async def get(self, name: str) -> NodeView:
        """Return what is known of a node already, else ``ask``."""
        return self.known.get(name) or await self.ask(name)

    async def ask(self, name: str) -> NodeView:
        """Return a node's current state; one that may not be read has no zone and no trouble.

        Raises:
            ApiUnreachableError: No answer came.
        """
        try:
            found = read_node(await self._api.get(f"/api/v1/nodes/{name}"))
        except ApiError as error:
            trouble = "it is no more" if error.status == _NOT_FOUND else ""
            if not trouble and name not in self.known:
                _LOGGER.warning("zones of nodes are not known: %s", error)
            found = NodeView(name, "", trouble)
        self.known[name] = found
        return found
