"""Follows the pods and nodes of a mesh: lists them, then watches from there on. Thin.

As the API's documentation describes ("Efficient detection of changes"): a watch that ends is
continued from the last version seen, and restarted with a list when the server no longer has that
version (410 Gone).
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Collection, Sequence
from typing import Any, Protocol

from pyserve.launch.on_kubernetes.api import Api, ApiError, ApiUnreachableError, Object
from pyserve.launch.on_kubernetes.reading import NodeView, read_node
from pyserve.observe.log_rate_limit import LogRateLimit

_LOGGER = logging.getLogger(__name__)
_GONE = 410
# The server ends a watch after this time; bookmarks, once a minute, make sure nothing is lost.
_WATCH_S = 300
# After two missing bookmarks the connection counts as dead.
_SILENCE_S = 130.0
_AGAIN_MIN_S, _AGAIN_MAX_S = 0.25, 10.0
_PAGE = 500


class Listener(Protocol):
    """Takes the cluster's events."""

    def before(self) -> Collection[str]:
        """Return the pods known to exist; called before a list is requested."""

    def listed(self, pods: Sequence[Object], before: Collection[str]) -> None:
        """Take every pod of the mesh."""

    def changed(self, kind: str, pod: Object) -> None:
        """Take one event of the watch: ADDED, MODIFIED or DELETED."""


class PodWatch:
    """The pods of one namespace with one label.

    Args:
        api: of the cluster.
        path: of the namespace's pods.
        selector: of their labels.
        listener: takes their events.
    """

    def __init__(
        self,
        api: Api,
        path: str,
        selector: str,
        listener: Listener,
    ) -> None:
        self._api = api
        self._path = path
        self._selector = selector
        self._listener = listener
        self._version = ""
        self._wait_s = _AGAIN_MIN_S
        self._log_limit = LogRateLimit()

    async def list(self) -> None:
        """Take the pods that are there, page by page.

        Raises:
            ApiError, ApiUnreachableError: the list cannot be read.
        """
        before = self._listener.before()
        found: list[Object] = []
        query = {"labelSelector": self._selector, "limit": str(_PAGE)}
        while True:
            page = await self._api.get(self._path, query)
            found += page["items"]
            metadata = page["metadata"]
            if not metadata.get("continue"):
                break
            query["continue"] = metadata["continue"]
        self._listener.listed(found, before)
        self._version = metadata["resourceVersion"]

    async def follow(self) -> None:
        """Take the events after the list, until cancelled; the cluster may be away meanwhile."""
        while True:
            try:
                if not self._version:
                    await self.list()
                await self._watch()
                # A server that ends each watch at once is not asked without a pause.
                await asyncio.sleep(_AGAIN_MIN_S)
            except ApiError as error:
                if error.status == _GONE:
                    self._version = ""
                    continue
                await self._rest(f"the API server says no: {error}")
            except (ApiUnreachableError, ValueError) as error:
                await self._rest(f"the API server is not heard: {error}")

    async def _watch(self) -> None:
        query = {
            "labelSelector": self._selector,
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": self._version,
            "timeoutSeconds": str(_WATCH_S),
        }
        async with self._api.lines(self._path, query, _SILENCE_S) as lines:
            async for line in lines:
                self._take(json.loads(line))
                self._wait_s = _AGAIN_MIN_S

    def _take(self, event: dict[str, Any]) -> None:
        kind, found = event["type"], event["object"]
        if kind == "ERROR":
            raise ApiError(
                int(found.get("code", 0)), found.get("reason", ""), found.get("message", "")
            )
        self._version = found["metadata"]["resourceVersion"]
        if kind != "BOOKMARK":
            self._listener.changed(kind, found)

    async def _rest(self, why: str) -> None:
        if self._log_limit.allows():
            _LOGGER.warning("%s; what becomes of pods is heard again when it is", why)
        await asyncio.sleep(self._wait_s)
        self._wait_s = min(2 * self._wait_s, _AGAIN_MAX_S)


# The nodes of the cluster, as far as a launcher may read them. Thin.

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
