"""The API server, as a launcher needs it: JSON objects, and watches of a mesh's pods and nodes.

kubernetes_asyncio finds the cluster and authenticates (service accounts, kubeconfig files,
credential programs). Objects stay plain JSON, since its classes reject fields of newer clusters.

Pods and nodes are listed, then watched from there on, as the API's documentation describes
("Efficient detection of changes"): a watch that ends is continued from the last version seen, and
restarted with a list when the server no longer has that version (410 Gone). The output of each
running pod is a stream of its own in the logs of the cluster.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, Self

import aiohttp
from kubernetes_asyncio import config as locating
from kubernetes_asyncio.client import ApiClient, Configuration
from kubernetes_asyncio.config import ConfigException

from pyserve.config import inherited_environment
from pyserve.config.launchers import REPLICA_CONTAINER
from pyserve.control.replicas.launching import ReplicaOrder
from pyserve.errors import MeshError
from pyserve.launch.on_kubernetes.reading import NodeView, PodView, read_node
from pyserve.observe.log_rate_limit import LogRateLimit

Object = Mapping[str, Any]

_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
# An API server answers in milliseconds, an admission webhook within its own limit of 30 s at most.
_TIMEOUT_S = 40.0
_CONNECT_TIMEOUT_S = 5.0
_UNAUTHORIZED = 401
_NAMESPACE_DEFAULT = "default"


class ApiError(Exception):
    """The API server refused a request.

    Attributes:
        status: of HTTP.
        reason: one word of the API, such as NotFound; "": it gave none.
        message: for people, in one line.
    """

    def __init__(self, status: int, reason: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason
        self.message = message


class ApiUnreachableError(Exception):
    """No answer came from the API server; the request may or may not have been carried out."""


@dataclass(frozen=True, slots=True)
class Cluster:
    """Which cluster to use, and how it is found.

    Attributes:
        kubeconfig: path of the file; "": this pod's own cluster, else the usual files.
        context: of that file; "": its current one.
    """

    kubeconfig: str = ""
    context: str = ""

    @property
    def is_own(self) -> bool:
        """Whether it is the cluster that this process runs in."""
        return (
            not self.kubeconfig
            and not self.context
            and "KUBERNETES_SERVICE_HOST" in inherited_environment({})
            and (_ACCOUNT / "token").exists()
        )

    def namespace(self) -> str:
        """Return the namespace of this process, or of the context."""
        if self.is_own:
            return (_ACCOUNT / "namespace").read_text().strip()
        contexts, current = locating.list_kube_config_contexts(self.kubeconfig or None)
        chosen = [each for each in contexts if each["name"] == self.context] or [current]
        found = (chosen[0] or {}).get("context", {}).get("namespace", _NAMESPACE_DEFAULT)
        return str(found)


class Api:
    """Requests to one API server, until ``close``; made by ``connect``."""

    def __init__(self, cluster: Cluster, configuration: Configuration) -> None:
        self._cluster = cluster
        self._configuration = configuration
        self._client = ApiClient(configuration)

    @classmethod
    async def connect(cls, cluster: Cluster) -> Self:
        """Find a cluster and see that it answers.

        Raises:
            MeshError: none is known, it does not answer, or it does not know us.
        """
        configuration = Configuration()
        # Besides the watch, each pod whose output is followed holds a connection.
        configuration.connection_pool_maxsize = 0
        try:
            await _locate(cluster, configuration)
        except (ConfigException, OSError, KeyError, ValueError) as error:
            raise MeshError(
                f"no Kubernetes cluster is known here: {error}; set KUBECONFIG, name a file by "
                f"--launcher-option kubeconfig=PATH, or run the controller in the cluster"
            ) from error
        api = cls(cluster, configuration)
        try:
            await api.get("/version")
            await api.get("/api/v1")
        except (ApiUnreachableError, ApiError) as error:
            await api.close()
            raise MeshError(
                f"the Kubernetes cluster at {configuration.host} does not let us in: {error}"
            ) from error
        return api

    @property
    def host(self) -> str:
        """Where the API server is."""
        return str(self._configuration.host)

    async def close(self) -> None:
        """Abort the requests under way. Idempotent."""
        await self._client.close()

    async def get(self, path: str, query: Mapping[str, str] | None = None) -> Object:
        """Return an object or a list; see ``request``."""
        return await self.request("GET", path, query)

    async def request(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None = None,
        body: Object | None = None,
    ) -> Object:
        """Send a request and return the answer.

        Raises:
            ApiError: the server said no.
            ApiUnreachableError: no answer has come; what was asked for may have happened.
        """
        timeout = aiohttp.ClientTimeout(total=_TIMEOUT_S, sock_connect=_CONNECT_TIMEOUT_S)
        async with self._asking(method, path, query, body, timeout) as response:
            found: Object = json.loads(await response.read())
            return found

    @contextlib.asynccontextmanager
    async def lines(
        self, path: str, query: Mapping[str, str], silence_s: float | None
    ) -> AsyncIterator[AsyncIterator[str]]:
        """Return the lines of a streamed answer.

        Args:
            path: as of ``request``.
            query: the same.
            silence_s: the longest pause between lines; None: any.

        Raises:
            ApiError, ApiUnreachableError: as of ``request``, also in the middle of the stream.
        """
        timeout = aiohttp.ClientTimeout(sock_connect=_CONNECT_TIMEOUT_S, sock_read=silence_s)
        async with self._asking("GET", path, query, None, timeout) as response:
            yield _decoded(response.content)

    @contextlib.asynccontextmanager
    async def _asking(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None,
        body: Object | None,
        timeout: aiohttp.ClientTimeout,
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        try:
            response = await self._send(method, path, query, body, timeout)
            if response.status == _UNAUTHORIZED and not self._cluster.is_own:
                # Credentials from programs expire; those of service accounts are reread anyway.
                response.release()
                await _locate(self._cluster, self._configuration)
                response = await self._send(method, path, query, body, timeout)
            async with response:
                if not response.ok:
                    raise _refused(response.status, await response.read())
                yield response
        except (aiohttp.ClientError, TimeoutError, OSError, ConfigException) as error:
            raise ApiUnreachableError(f"{type(error).__name__}: {error}".rstrip(": ")) from error

    async def _send(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None,
        body: Object | None,
        timeout: aiohttp.ClientTimeout,
    ) -> aiohttp.ClientResponse:
        response: aiohttp.ClientResponse = await self._client.call_api(
            path,
            method,
            query_params=list((query or {}).items()),
            header_params={"Accept": "application/json"},
            body=body,
            auth_settings=["BearerToken"],
            _preload_content=False,
            _request_timeout=timeout,
        )
        return response


async def _locate(cluster: Cluster, configuration: Configuration) -> None:
    if cluster.is_own:
        locating.load_incluster_config(client_configuration=configuration)  # type: ignore[no-untyped-call]  # it has no types
        return
    await asyncio.wait_for(
        locating.load_kube_config(
            config_file=cluster.kubeconfig or None,
            context=cluster.context or None,
            client_configuration=configuration,
            persist_config=False,
        ),
        _TIMEOUT_S,
    )


async def _decoded(content: aiohttp.StreamReader) -> AsyncIterator[str]:
    async for line in content:
        yield line.decode(errors="replace").rstrip("\r\n")


def _refused(status: int, body: bytes) -> ApiError:
    """Return the error in a Status object (meta/v1), or in what came in its place."""
    try:
        found = json.loads(body)
        message, reason = str(found["message"]), str(found.get("reason", ""))
    except (ValueError, KeyError, TypeError, AttributeError):
        message, reason = body.decode(errors="replace")[:500], ""
    return ApiError(status, reason, " ".join(message.split()) or f"HTTP status {status}")


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


# How long to wait for the last lines: the node sends them by the time it reports the end.
_LAST_WORDS_S = 2.0
_AGAIN_S = 1.0
# More than a traceback has. Arbitrary.
_LAST_LINES = 100


class OutputFollower:
    """The output of the pods of one mesh, until ``close``.

    Args:
        api: of the cluster.
        path: of the namespace's pods.
        said: takes each line, without its end.
    """

    def __init__(self, api: Api, path: str, said: Callable[[ReplicaOrder, str], None]) -> None:
        self._api = api
        self._path = path
        self._said = said
        self._following: dict[str, asyncio.Task[None]] = {}

    def follow(self, order: ReplicaOrder, pod: str, *, is_old: bool = False) -> None:
        """Take the lines of a pod that runs; once, however often it is asked.

        Args:
            order: whose they are.
            pod: its name.
            is_old: an earlier controller has taken the output so far.
        """
        if pod not in self._following:
            work = self._follow(order, pod, {"tailLines": "0"} if is_old else {})
            self._following[pod] = asyncio.get_running_loop().create_task(work)

    async def finish(self, order: ReplicaOrder, pod: str, view: PodView | None) -> None:
        """Take the last lines of a pod that has ended."""
        task = self._following.pop(pod, None)
        if task is not None:
            await asyncio.wait([task], timeout=_LAST_WORDS_S)
            task.cancel()
        elif view is not None:
            # It has ended before anybody saw it run.
            for line in view.last_output.splitlines()[-_LAST_LINES:]:
                self._said(order, line)

    def close(self) -> None:
        """Follow none any more. Idempotent."""
        for task in self._following.values():
            task.cancel()
        self._following.clear()

    async def _follow(self, order: ReplicaOrder, pod: str, begin: Mapping[str, str]) -> None:
        query = {"container": REPLICA_CONTAINER, "follow": "true", "timestamps": "true", **begin}
        last = ""
        while True:
            try:
                async with self._api.lines(f"{self._path}/{pod}/log", query, None) as lines:
                    async for line in lines:
                        # Of one length and in UTC, so that they sort as texts.
                        time, _, text = line.partition(" ")
                        if time > last:
                            last = time
                            self._said(order, text)
                return
            except ApiError as error:
                _LOGGER.warning("the output of pod %s is not followed: %s", pod, error)
                return
            except (ApiUnreachableError, ValueError) as error:
                _LOGGER.info("the output of pod %s is followed anew: %s", pod, error)
            await asyncio.sleep(_AGAIN_S)
            query.pop("tailLines", None)
            query["sinceTime"] = last or query.get("sinceTime", "")
            if not query["sinceTime"]:
                del query["sinceTime"]
