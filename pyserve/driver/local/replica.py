"""One deployment of an application in local testing mode: an instance, and its replica's server."""

from __future__ import annotations

import asyncio
import contextvars
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from pyserve.api.context import ReplicaContext, enter_local_replica
from pyserve.config import MeshSettings
from pyserve.control.replicas.identity import learn_services
from pyserve.control.state.mesh import Desired, Version
from pyserve.control.views import view_of_one
from pyserve.references import References
from pyserve.replica.asgi import AsgiApplication
from pyserve.replica.endpoints import SocketPlace, choose_socket
from pyserve.replica.loading import (
    Loaded,
    close,
    construct,
    drain_batches,
    leave_unfinished,
    load,
    reconfigure,
    stop_application,
)
from pyserve.replica.membership import ready_of
from pyserve.replica.phases import Constructed, Preparation
from pyserve.replica.serving import server_of, threads_for
from pyserve.request import LOCAL_REPLICA
from pyserve.stepping.decorator import tell_costs
from pyserve.types import ApplicationName, DeploymentKey, DeploymentName, ReplicaId
from pyserve.wire.v1 import mesh_pb2

if TYPE_CHECKING:
    from pyserve.aio import Server
    from pyserve.bridge import CallStarter

Value = TypeVar("Value")
# When the grace is over calls are answered at once, but a thread of user code cannot be ended: it
# is left behind after this time. Arbitrary.
_END_TIMEOUT_S = 1.0
_HOST = "127.0.0.1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """The part that all replicas of this process share.

    Attributes:
        settings: Those of the environment.
        folder: For their sockets.
        token: Routers of this process prove that they have it.
        references: The values that this process holds.
    """

    settings: MeshSettings
    folder: Path
    token: bytes
    references: References


class LocalReplica:
    """The only replica of one deployment. Made by ``start``, used on one loop.

    Attributes:
        loaded: The class or function and its options.
        view: What routers are told of the deployment.
    """

    def __init__(
        self,
        code: ReplicaCode,
        made: Constructed,
        server: Server,
        socket: SocketPlace,
        view: mesh_pb2.DeploymentView,
    ) -> None:
        self.loaded = made.loaded
        self.view = view
        self._code = code
        self._made = made
        self._server = server
        self._socket = socket

    @classmethod
    async def start(
        cls, spec: mesh_pb2.DeploymentSpec, replica_id: ReplicaId, place: Place
    ) -> LocalReplica:
        """Load the code, construct the instance, warm it up, and serve it.

        Raises:
            LoadError: User code cannot be loaded, or raised.
        """
        loaded = load(spec, place.settings.servicer_functions)
        code = ReplicaCode(
            ReplicaContext(
                app_name=ApplicationName(spec.application),
                deployment=DeploymentName(spec.name),
                replica_id=replica_id,
                servable_object=None,
                deployment_actors=tuple(each.name for each in loaded.options.deployment_actors),
            )
        )
        threads_for(loaded.target, loaded.options.ongoing_requests_limit())
        made = await _prepare(loaded, code, place.settings)
        socket = choose_socket(place.folder)
        try:
            server = code.call(_make_server, made, code, place)
            endpoints = _listen(server, socket)
            await server.start()
            tell_costs(made.instance, server.native.set_costs)
        except BaseException:
            await _leave(made.instance, made.application, code, _in(0.0))
            raise
        plain_service = f"{spec.application}.{spec.name}"
        ready = ready_of(made, server, mesh_pb2.Assign(), endpoints, plain_service)
        return cls(code, made, server, socket, _view(spec, made, ready, code.context, place))

    @property
    def key(self) -> DeploymentKey:
        """The deployment."""
        return DeploymentKey(self.context.app_name, self.context.deployment)

    @property
    def context(self) -> ReplicaContext:
        """Who it is; what ``get_replica_context`` returns in its code."""
        return self._code.context

    async def reconfigure(self, config: object) -> None:
        """Let the instance take another ``user_config`` on.

        Raises:
            LoadError: It refuses.
        """
        timeout_s = self.loaded.options.startup_timeout_s
        await self._code.run(reconfigure(self._made.instance, config, timeout_s=timeout_s))

    def close_web_sockets(self) -> None:
        """Ask the clients of WebSockets to leave."""
        if self._made.application is not None:
            self._made.application.drain()

    async def close(self) -> None:
        """Refuse new calls, let those that run end within the grace, then let the instance go."""
        grace_s = self.loaded.options.graceful_shutdown_timeout_s
        ends_at = _in(grace_s)
        self.close_web_sockets()
        stopping = asyncio.create_task(self._server.stop(grace_s))
        batches = asyncio.create_task(self._code.run(drain_batches(self._made.instance)))
        ended, _ = await asyncio.wait({stopping}, timeout=grace_s + _END_TIMEOUT_S)
        for task in ended:
            task.result()
        batches.cancel()
        self._socket.close()
        await _leave(self._made.instance, self._made.application, self._code, ends_at)


class ReplicaCode:
    """Runs code of one replica, where several share a loop.

    Attributes:
        context: What ``get_replica_context`` returns there.
    """

    def __init__(self, context: ReplicaContext) -> None:
        self.context = context
        self._variables = contextvars.Context()
        self.enter(context)

    def enter(self, context: ReplicaContext) -> None:
        """Let code that begins from now on be that of ``context``."""
        self.context = context
        self._variables.run(enter_local_replica, context)

    def call(self, function: Callable[..., Value], *args: Any, **options: Any) -> Value:
        """Call a function."""
        return self._variables.copy().run(function, *args, **options)

    async def run(self, step: Coroutine[Any, Any, Value], /) -> Value:
        """Await a coroutine, in a task of its own."""
        variables = self._variables.copy()
        return await asyncio.get_running_loop().create_task(step, context=variables)

    def around(self, start: CallStarter) -> CallStarter:
        """Return what starts calls whose code is that of the replica; see ``ServerSettings``."""

        def start_here(token: int, call: Any, message: bytes | None) -> None:
            # The tasks and threads of calls copy the variables when they begin.
            before = LOCAL_REPLICA.set(self.context)
            try:
                start(token, call, message)
            finally:
                LOCAL_REPLICA.reset(before)

        return start_here


async def _prepare(loaded: Loaded, code: ReplicaCode, settings: MeshSettings) -> Constructed:
    """Construct the instance and do what comes before its first call.

    Raises:
        LoadError: User code raised.
    """
    instance = code.call(construct, loaded)
    preparation = Preparation(loaded, instance, settings.http_middlewares)

    def enter() -> None:
        code.enter(replace(code.context, servable_object=instance))

    try:
        return await preparation.run(code.run, enter)
    except BaseException:
        # Unlike a replica's process, this one lives on.
        if preparation.is_initialized:
            await _leave(instance, preparation.application, code, _in(0.0))
        else:
            await code.run(leave_unfinished(instance, _in(0.0)))
        raise


def _make_server(made: Constructed, code: ReplicaCode, place: Place) -> Server:
    return server_of(
        made,
        place.settings,
        application=code.context.app_name,
        deployment=code.context.deployment,
        replica_id=code.context.replica_id,
        token=place.token,
        development=True,
        references=place.references,
        around_starts=code.around,
    )


def _listen(server: Server, socket: SocketPlace) -> mesh_pb2.Endpoints:
    # Without a port that is listened at, the address still says which machine this is.
    unix_path, port = str(socket.path), 0
    try:
        server.add_insecure_port(f"unix:{unix_path}")
    except RuntimeError:  # The path is too long, for example.
        unix_path, port = "", server.add_insecure_port(f"{_HOST}:0")
    return mesh_pb2.Endpoints(address=f"{_HOST}:{port}", unix_path=unix_path, proves_itself=True)


def _view(
    spec: mesh_pb2.DeploymentSpec,
    made: Constructed,
    ready: mesh_pb2.Ready,
    context: ReplicaContext,
    place: Place,
) -> mesh_pb2.DeploymentView:
    """Return what a controller would make of a ready replica."""
    options, node = made.loaded.options, place.settings.node
    key = DeploymentKey(context.app_name, context.deployment)
    desired = Desired(key, Version("", options, sys_path=tuple(spec.code.sys_path)))
    learn_services(desired, ready, unix_now=time.time())
    replica = mesh_pb2.ReplicaView(
        replica_id=context.replica_id,
        node=node.node_id,
        zone=node.zone,
        endpoints=ready.endpoints,
        max_ongoing_requests=options.ongoing_requests_limit(),
        replica_metadata_json=made.metadata_json,
    )
    return view_of_one(desired, replica, is_ingress=spec.is_ingress)


async def _leave(
    instance: object, application: AsgiApplication | None, code: ReplicaCode, ends_at: float
) -> None:
    if application is not None:
        await code.run(stop_application(application))
    await code.run(close(instance, ends_at))


def _in(seconds: float) -> float:
    return asyncio.get_running_loop().time() + seconds
