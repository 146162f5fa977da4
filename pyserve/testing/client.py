"""An application in this process with its doors: HTTP, JSON, gRPC and WebSockets."""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

import grpc

from pyserve.api.context import as_local_replica
from pyserve.driver.local import find_local
from pyserve.errors import UsageError
from pyserve.testing.local import local
from pyserve.types import ApplicationName

if TYPE_CHECKING:
    from types import ModuleType

    import httpx
    from websockets.sync.client import ClientConnection

    from pyserve.api.deployment import Application
    from pyserve.api.handles.handle import DeploymentHandle

Stub = TypeVar("Stub")

# Nothing is in flight any more that a test has not left behind.
_GRACE_S = 1.0
_ADDRESS = "127.0.0.1:0"
# So many fit into any process.
_CONNECTIONS_MAX = 250


class Client:
    """Speaks with an application of this process. Yielded by ``client``.

    Attributes:
        handle: Calls the application's first deployment.
        address: ``host:port`` where it is answered, for clients of a test's own.
        channel: To its gRPC services.
    """

    def __init__(self, handle: DeploymentHandle[Any], address: str, timeout_s: float) -> None:
        self.handle = handle
        self.address = address
        self._timeout_s = timeout_s
        self._closing = ExitStack()
        self.channel = self._closing.enter_context(grpc.insecure_channel(address))
        self._http: httpx.Client | None = None

    @property
    def url(self) -> str:
        """Where plain HTTP is answered."""
        return f"http://{self.address}"

    @property
    def http(self) -> httpx.Client:
        """A client of plain HTTP whose paths are the application's: ``http.get("/price")``.

        Raises:
            UsageError: httpx is not installed.
        """
        if self._http is None:
            kind = _needed("httpx").Client
            # It connects only to this process, so proxies of the environment are ignored.
            made = kind(base_url=self.url, timeout=self._timeout_s, trust_env=False)
            self._http = self._closing.enter_context(made)
        return self._http

    def json(self, method: str, message: Mapping[str, object] | None = None) -> dict[str, Any]:
        """Call a unary method of a gRPC service by JSON, as ``curl`` would.

        Args:
            method: ``"package.Service/Method"``.
            message: The request, in the JSON of protobuf.

        Raises:
            httpx.HTTPStatusError: The call failed; ``response.json()`` says how, as does a note.
            UsageError: httpx is not installed.
        """
        answer = self.http.post(f"/{method}", json=message or {})
        try:
            answer.raise_for_status()
        except _needed("httpx").HTTPStatusError as error:
            error.add_note(answer.text.rstrip())  # Test runners show notes, but not bodies.
            raise
        found: dict[str, Any] = json.loads(answer.content)
        return found

    def stub(self, stub: Callable[[grpc.Channel], Stub]) -> Stub:
        """Return a generated stub, such as ``GreeterStub``, that calls the application."""
        return stub(self.channel)

    def websocket(self, path: str = "/", **options: Any) -> ClientConnection:
        """Open a WebSocket; a context manager that closes it.

        Args:
            path: The application's.
            options: Of ``websockets.sync.client.connect``.

        Raises:
            UsageError: websockets is not installed.
            websockets.InvalidStatus: The application refuses it.
        """
        connect = _needed("websockets.sync.client").connect
        opened: ClientConnection = connect(
            f"ws://{self.address}{path}",
            **{"open_timeout": self._timeout_s, "proxy": None} | options,
        )
        return opened

    def close(self) -> None:
        """Close its connections. Idempotent."""
        self._closing.close()


@contextmanager
def client(app: Application, *, name: str = "default", timeout_s: float = 60.0) -> Iterator[Client]:
    """Run an application in this process until the block ends, and answer its clients.

    As ``local``, with an ingress at a port of the loopback, which answers what that of a mesh
    does: gRPC, JSON and gRPC-Web for the services of all deployments; plain HTTP, FastAPI and
    WebSockets for the one that was bound last. Starlette's ``TestClient(api)`` works inside the
    block too, since its code counts as the replica's.

    Args:
        app: What ``bind`` returned.
        name: The application's name.
        timeout_s: How long constructors, and each request of this client, may take.

    Raises:
        DeploymentFailed: User code could not be loaded, or raised.
        TimeoutError: It was not ready in time.
        WrongMoment: An application of that name runs in this process already.
    """
    # Those who use handles alone need no ingress, which takes a while to import.
    from pyserve.driver.local.server import LocalServer

    with local(app, name=name, timeout_s=timeout_s) as handle, ExitStack() as stack:
        runtime = find_local()
        assert runtime is not None, "the application runs in it"
        mesh = runtime.mesh
        application = mesh.applications[ApplicationName(name)]
        limits = mesh.place.settings.ingress
        limits = replace(limits, connections_max=min(limits.connections_max, _CONNECTIONS_MAX))
        starting = LocalServer.start(mesh, application, [_ADDRESS], settings=limits)
        server = runtime.wait(starting)
        stack.callback(lambda: runtime.wait(server.stop(_GRACE_S)))
        made = Client(handle, server.addresses[0], timeout_s)
        stack.callback(made.close)
        stack.enter_context(as_local_replica(application.replicas[application.ingress].context))
        yield made


def _needed(module: str) -> ModuleType:
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        package = module.partition(".")[0]
        raise UsageError(
            f"this client needs {package}, which is not installed; "
            f"run `pip install 'pyserve-mesh[testing]'`"
        ) from error
