"""The API server, as a launcher needs it: JSON objects and streams of lines.

kubernetes_asyncio finds the cluster and authenticates (service accounts, kubeconfig files,
credential programs). Objects stay plain JSON, since its classes reject fields of newer clusters.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import aiohttp
from kubernetes_asyncio import config as locating
from kubernetes_asyncio.client import ApiClient, Configuration
from kubernetes_asyncio.config import ConfigException

from pyserve.config import inherited_environment
from pyserve.errors import MeshError

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
