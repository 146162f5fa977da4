"""The REST interface of Ray Serve's dashboard: applications as JSON, to read, write and delete.

It has an address of its own, apart from requests. Every client has to send the mesh token: a client
that may deploy can run code here, and this machine may have other users, and web pages that send
any request to 127.0.0.1. User code is imported by a child process, the command ``pyserve deploy``,
so that none of it runs in the controller's process.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import json
import logging
import socket
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from starlette.applications import Starlette
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from pyserve.config import DeploymentOptions, inherited_environment, is_loopback
from pyserve.config.tls import PLAIN_TCP
from pyserve.control.controller import Controller
from pyserve.control.server.service import told
from pyserve.control.state.mesh import MeshState
from pyserve.errors import MeshError, MeshNotFound, UsageError, WrongMoment
from pyserve.side_http import SideServer
from pyserve.types import ApplicationName, DeploymentKey, DeploymentName, MeshAddress
from pyserve.wire.v1 import control_pb2

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.types import ASGIApp, Receive, Scope, Send

    from pyserve.config.tls import TlsFiles


_LOGGER = logging.getLogger(__name__)
_PATH = "/api/serve/applications/"
_SCALE_PATH = "/api/v1/applications/{application}/deployments/{deployment}/scale"
# A configuration is a few kilobytes.
_BODY_BYTES_MAX = 4 << 20
# Of a command's output; the rest is read and dropped.
_SAID_BYTES_MAX = 256 << 10
# Deploys that may wait for the one before. A client that sends more is at fault.
_WAITING_MAX = 8
# Importing is all that the command waits for. As long as a replica's start may take.
_LOAD_TIMEOUT_S = 300.0


class RestServer:
    """Answers REST until it is closed.

    Args:
        controller: What it speaks for.
        address: ``host:port`` where it listens; port 0 picks one.
        mesh: The controller's own address, and the token that everybody has to show.
        token_file: Where that token lies, for the command.
        tls: Certificates; None: plain text.
        takes_plain_token: Other machines may show the token without them.
    """

    def __init__(
        self,
        controller: Controller,
        *,
        address: str,
        mesh: MeshAddress,
        token_file: Path,
        tls: TlsFiles | None,
        takes_plain_token: bool = False,
    ) -> None:
        self.address = address
        self._controller = controller
        self._environment = {
            "PYSERVE_CONTROLLER": mesh.controller,
            "PYSERVE_TOKEN_FILE": str(token_file),
        }
        self._token = mesh.token.hex()
        self._tls = tls
        self._takes_plain_token = takes_plain_token
        self._turn = asyncio.Lock()
        self._waiting = 0
        self._server: SideServer | None = None

    async def start(self) -> None:
        """Listen from now on.

        Raises:
            MeshError: The address cannot be had, or the token would come there in plain text.
        """
        host, _, port = self.address.rpartition(":")
        if not (is_loopback(host) or self._tls is not None or self._takes_plain_token):
            raise MeshError(
                f"PYSERVE_DASHBOARD_ADDRESS={self.address}: whoever asks there shows the mesh "
                f"token, which would pass over the network in plain text; set "
                f"PYSERVE_TLS_CERT_FILE and PYSERVE_TLS_KEY_FILE, name an address of the loopback, "
                f"or set {PLAIN_TCP}=1 where nobody else can read what passes on that network"
            )
        family = socket.AF_INET6 if host.startswith("[") else socket.AF_INET
        try:
            listener = socket.create_server((host.strip("[]"), int(port)), family=family)
        except OSError as error:
            raise MeshError(
                f"PYSERVE_DASHBOARD_ADDRESS={self.address}: the REST interface cannot listen "
                f"there: {error.strerror}; name another address, or take the variable away"
            ) from error
        self.address = f"{host}:{listener.getsockname()[1]}"
        routes = [
            Route(_PATH, self._get, methods=["GET"]),
            Route(_PATH, self._put, methods=["PUT"]),
            Route(_PATH, self._delete, methods=["DELETE"]),
            Route(_SCALE_PATH, self._scale, methods=["POST"]),
        ]
        asked = _TokenAsked(Starlette(routes=routes), self._token)
        self._server = SideServer(asked, listener, tls=self._tls)
        self._server.start()

    async def close(self) -> None:
        """Accept nothing more, and give current requests a moment to end. Idempotent."""
        if self._server is not None:
            await self._server.close()

    async def _get(self, _request: Request) -> Response:
        controller = self._controller
        details = instance_details(controller.status(), controller.declarations(), controller.state)
        await told(controller)
        return JSONResponse(details)

    async def _delete(self, _request: Request) -> Response:
        async def delete(name: str) -> None:
            with contextlib.suppress(MeshNotFound):  # Somebody else has deleted it meanwhile.
                await self._controller.delete(name)

        names = [each.name for each in self._controller.status().applications]
        await asyncio.gather(*map(delete, names))
        return Response()

    async def _scale(self, request: Request) -> Response:
        """Set a deployment's number of replicas for an external scaler."""
        application = request.path_params["application"]
        deployment = request.path_params["deployment"]
        body = await _body(request)
        try:
            replicas = json.loads(body or b"")["target_num_replicas"]
            if type(replicas) is not int:
                raise TypeError
        except (ValueError, KeyError, TypeError, RecursionError):
            text = 'send {"target_num_replicas": N}, a whole number'
            return JSONResponse({"error": text}, status_code=400)
        try:
            self._controller.set_target(application, deployment, replicas)
        except WrongMoment as error:
            return JSONResponse({"error": str(error)}, status_code=412)
        except (MeshNotFound, UsageError) as error:  # Both as in Ray Serve.
            return JSONResponse({"error": str(error)}, status_code=400)
        return JSONResponse({"message": f"{application}/{deployment} is to have {replicas}"})

    async def _put(self, request: Request) -> Response:
        body = await _body(request)
        if body is None:
            return PlainTextResponse(
                f"a configuration has at most {_BODY_BYTES_MAX} bytes", status_code=413
            )
        if self._waiting >= _WAITING_MAX:
            return PlainTextResponse(
                f"{_WAITING_MAX} deploys wait already; send this one later",
                status_code=503,
                headers={"retry-after": "1"},
            )
        self._waiting += 1
        try:
            async with self._turn:
                status, said = await self._deploy(body)
        except TimeoutError:
            return PlainTextResponse(
                f"the applications could not be imported in {_LOAD_TIMEOUT_S:g} s",
                status_code=504,
            )
        finally:
            self._waiting -= 1
        if status:
            _LOGGER.info("a configuration over REST is refused: %s", said.strip())
            return PlainTextResponse(said, status_code=400)
        return Response()

    async def _deploy(self, body: bytes) -> tuple[int, str]:
        """Let the command load and send a configuration; return its status and its words."""
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-P", "-m", "pyserve", "deploy", "-", "--no-wait"),
            env=inherited_environment(self._environment),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
            # Ctrl-C for the mesh is none for it: it ends with its question, or is killed.
            start_new_session=True,
        )
        assert process.stdin is not None, "asked for"
        assert process.stderr is not None, "asked for"
        try:
            async with asyncio.timeout(_LOAD_TIMEOUT_S):
                # One that fails early reads nothing.
                with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                    process.stdin.write(body)
                    await process.stdin.drain()
                process.stdin.close()
                said = await _read(process.stderr)
                status = await process.wait()
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        return status, said.decode(errors="replace")


async def _body(request: Request) -> bytes | None:
    """Return the body of a request; ``None``: it is too long."""
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > _BODY_BYTES_MAX:
            return None
    return bytes(body)


async def _read(stream: asyncio.StreamReader) -> bytes:
    said = bytearray()
    while chunk := await stream.read(65536):
        said += chunk[: _SAID_BYTES_MAX - len(said)]
    return bytes(said)


class _TokenAsked:
    """Admits requests with the token, as ``Authorization: Bearer``."""

    def __init__(self, application: ASGIApp, token: str) -> None:
        self._application = application
        self._wanted = f"Bearer {token}".encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        given: Mapping[bytes, bytes] = dict(scope["headers"])
        if hmac.compare_digest(given.get(b"authorization", b""), self._wanted):
            await self._application(scope, receive, send)
            return
        refusal = PlainTextResponse(
            "the mesh token is asked for: Authorization: Bearer TOKEN, with the content of the "
            "file that mesh.json names as token_file",
            status_code=401,
            # A client that tries again must reconnect: cheaper for the controller than a request.
            headers={"www-authenticate": "Bearer", "connection": "close"},
        )
        await refusal(scope, receive, send)


Json = dict[str, object]


def instance_details(
    status: control_pb2.StatusReply,
    declarations: Iterable[control_pb2.Declaration],
    state: MeshState,
) -> Json:
    """Return what ``GET /api/serve/applications/`` answers.

    What belongs to Ray's actors (their ids, names and log files) is left out; what stands here
    means what it means there.
    """
    declared = {each.application: json.loads(each.json) for each in declarations}
    ingress = status.ingress
    proxies: Json = {}
    if ingress.node:
        state_of_proxy = "DRAINING" if ingress.is_draining else "HEALTHY"
        proxies[ingress.node] = {"node_id": ingress.node, "status": state_of_proxy}
    return {
        "controller_info": {"pid": status.controller_pid},
        "proxy_location": "EveryNode" if status.addresses else "Disabled",
        "http_options": _http_options(status.addresses),
        "proxies": proxies,
        "applications": {
            each.name: _application(each, declared, state) for each in status.applications
        },
        "target_capacity": status.target_capacity if status.HasField("target_capacity") else None,
    }


def _http_options(addresses: Iterable[str]) -> Json | None:
    for address in addresses:
        host, _, port = address.rpartition(":")
        return {"host": host.strip("[]"), "port": int(port)}
    return None


def _application(
    application: control_pb2.ApplicationStatus, declared: Mapping[str, Json], state: MeshState
) -> Json:
    name = application.name
    return {
        "name": name,
        "route_prefix": application.route_prefix or None,
        "docs_path": None,
        "status": application.state,
        "message": application.message,
        "last_deployed_time_s": application.deployed_at,
        "deployed_app_config": declared.get(name),
        "source": "declarative" if name in declared else "imperative",
        "deployments": {
            each.name: _deployment(name, each, state) for each in application.deployments
        },
    }


def _deployment(
    application: str, deployment: control_pb2.DeploymentStatus, state: MeshState
) -> Json:
    key = DeploymentKey(ApplicationName(application), DeploymentName(deployment.name))
    desired = state.deployments.get(key)
    target = None if desired is None else desired.target
    options: Json = {} if target is None else _options(target.options)
    return {
        "name": deployment.name,
        "status": deployment.state,
        "status_trigger": deployment.trigger,
        "message": deployment.message,
        "deployment_config": {**options, "name": deployment.name},
        "target_num_replicas": deployment.wanted,
        "replicas": [
            {
                "replica_id": each.replica_id,
                "state": each.state,
                "pid": each.pid,
                "node_id": each.node,
                **_costs(each),
            }
            for each in deployment.replicas
        ],
    }


def _costs(replica: control_pb2.ReplicaStatus) -> Json:
    """Return what Ray Serve has no name for, where it is known."""
    if not replica.HasField("costs"):
        return {}
    costs = replica.costs
    return {
        "costs": {
            "running": costs.running,
            "waiting": costs.waiting,
            "budget": costs.budget or None,
        }
    }


def _options(options: DeploymentOptions) -> Json:
    """Return the options for display, with the defaults that are sent unset."""
    written = json.loads(options.to_json())
    written["request_router_config"]["policy"] = options.request_router_config.policy
    return dict(written)
