"""``pyserve.run`` and the other verbs of a driver; they work on the process's one session.

All of them block their thread, also inside a running event loop, and may be called from any
thread.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING

from pyserve.api.context import local_attachment, replica_context
from pyserve.api.deployment import Application, Deployment
from pyserve.api.graph import PackedApplication, pack
from pyserve.api.handles.handle import DeploymentHandle
from pyserve.api.handles.typing import Deployed_co
from pyserve.config import (
    ControllerOptions,
    HTTPOptions,
    LoggingConfig,
    ProxyLocation,
    TracingConfig,
    check_name,
    gRPCOptions,
    read_settings,
)
from pyserve.config.control import CONTROLLER_RETURN_TIMEOUT_S, SHUTDOWN_GRACE_S
from pyserve.config.http import RoutePrefix, check_route_prefix
from pyserve.config.launchers import LauncherConfig
from pyserve.config.logging_config import environment_of_logs
from pyserve.config.unneeded import lines_on_local
from pyserve.control.discovery import not_found
from pyserve.control.returning import wait_for_end
from pyserve.control.state.specs import Run
from pyserve.driver.ingress_options import IngressOptions
from pyserve.driver.progress import ProgressView, progress_view, ready, ready_line
from pyserve.driver.session import (
    Session,
    await_session,
    current_session,
    end_session,
    find_session,
    open_session,
)
from pyserve.driver.status import MeshStatus, read_status
from pyserve.errors import (
    DeploymentFailed,
    KindError,
    MeshNotFound,
    MeshUnavailable,
    UsageError,
)
from pyserve.types import ApplicationName

if TYPE_CHECKING:
    from pyserve.driver.local import LocalRuntime

_LOGGER = logging.getLogger(__name__)
# How often a blocking run looks whether its mesh still lives: nobody waits for it, and the
# child's end has no other sign that a signal could not interrupt.
_ALIVE_CHECK_S = 0.5
# A second call finds no mesh any more.
_ENDING = threading.Lock()


def run(
    target: Application[Deployed_co],
    blocking: bool = False,
    name: str = "default",
    route_prefix: str | RoutePrefix | None = RoutePrefix.DEFAULT,
    logging_config: LoggingConfig | Mapping[str, object] | str | None = None,
    _local_testing_mode: bool = False,
    external_scaler_enabled: bool = False,
    controller_options: ControllerOptions | Mapping[str, object] | None = None,
    *,
    timeout_s: float | None = None,
    local_testing_mode: bool = False,
    launcher: LauncherConfig | Mapping[str, object] | str | None = None,
) -> DeploymentHandle[Deployed_co]:
    """Deploy an application and wait until every replica is ready.

    Attaches to a running mesh, or starts one that ends with this process. An application of
    the same name is replaced; the call returns when only the new version serves. In a replica it
    deploys to the mesh that the replica is in; ``docs/guide/replicas.md`` says how.

    Args:
        target: What ``bind`` returned.
        blocking: Say where it serves, wait until Ctrl-C, then shut down.
        name: The application's name in the mesh.
        route_prefix: Where plain HTTP reaches it, such as ``"/shop"``; ``None``: nowhere. By
            default ``"/"``, which the first application that takes plain HTTP gets.
        logging_config: Of those deployments that have none of their own.
        external_scaler_enabled: The numbers of replicas are set from outside of the mesh, and no
            deployment has an ``autoscaling_config``; local testing mode has one of each.
        controller_options: See ``ControllerOptions``.
        timeout_s: How long to wait for the replicas; ``None``: each has its
            ``startup_timeout_s``.
        local_testing_mode: Run in this process, one replica each, without other processes; see
            ``docs/guide/testing.md``.
        launcher: What starts the replicas; see ``start``. A mesh that runs has to have it.

    Returns:
        A handle of the application's deployment; ``handle.channel()`` serves generated stubs.

    Raises:
        DeploymentFailed: A replica could not be brought up; the text has its traceback.
        MeshError: The mesh cannot be reached or started, or another application has the prefix.
        KindError: ``target`` is no application.
        UsageError: It cannot travel to the replicas, the prefix cannot be one, or the launcher
            cannot do what an option asks for.
    """
    _check_controller(controller_options)
    logs = None if logging_config is None else LoggingConfig.read(logging_config)
    packed = replace(_packed(target, name, logs), external_scaler_enabled=external_scaler_enabled)
    if route_prefix is not None:
        check_route_prefix("route_prefix", RoutePrefix.text(route_prefix))
    ingress = IngressOptions.of(None, None, None, launcher=launcher)
    if local_testing_mode or _local_testing_mode or _is_local_replica():
        if launcher is not None:
            raise UsageError("run() was given a launcher, but local_testing_mode starts no replica")
        _deploy_here(packed, timeout_s)
        is_running = _is_local
    else:
        session = open_session(options=ingress)
        listening = deploy(session, packed, route_prefix=route_prefix, timeout_s=timeout_s)
        session.serving[packed.name] = {each.name for each in packed.deployments}
        if blocking:
            for line in ready(session, session.serving, listening):
                sys.stderr.write(f"{line}\n")
        elif listening:
            sys.stderr.write(f"{ready_line(packed.name, listening)}\n")
        is_running = session.is_running
    if blocking:
        _block(is_running)
    return DeploymentHandle(packed.ingress, packed.name)


def start(
    proxy_location: ProxyLocation | str | None = None,
    http_options: HTTPOptions | Mapping[str, object] | None = None,
    grpc_options: gRPCOptions | Mapping[str, object] | None = None,
    logging_config: LoggingConfig | Mapping[str, object] | str | None = None,
    tracing_config: TracingConfig | Mapping[str, object] | None = None,
    controller_options: ControllerOptions | Mapping[str, object] | None = None,
    *,
    address: str | Sequence[str] | None = None,
    launcher: LauncherConfig | Mapping[str, object] | str | None = None,
) -> None:
    """Attach to a running mesh, or start one that ends with this process.

    Of a mesh that runs already, only ``request_timeout_s`` of the options can be changed.

    Args:
        proxy_location: ``"Disabled"``: the mesh has no ingress and is reached by handles only.
            ``"EveryNode"`` and ``"HeadOnly"`` are the same in a mesh on one machine.
        http_options: Where it listens, instead of ``address``, and how; see ``HTTPOptions``.
        grpc_options: Another port that it listens at; see ``gRPCOptions``. HTTP and gRPC come
            in at each of its ports.
        logging_config: How the processes of a mesh that is started log; one that runs logs on as
            it was told.
        tracing_config: Which requests are traced, in every process of the mesh and in this one, and
            who gets the spans; see ``TracingConfig``.
        controller_options: See ``ControllerOptions``.
        address: ``host:port``, one or several, where the ingress of a new mesh listens; port 0
            picks one, see ``status().addresses``. By default port 8000 of the loopback.
        launcher: What starts the replicas: its name, the import path of one of your own, or a
            mapping with ``name`` and what it is told; see ``docs/guide/launchers.md``.

    Raises:
        MeshError: The mesh cannot be reached or started, e.g. since the port is taken; or one runs
            that listens elsewhere.
        UsageError: An option is not allowed.
    """
    _check_controller(controller_options)
    logs = None if logging_config is None else LoggingConfig.read(logging_config)
    addresses = (address,) if isinstance(address, str) else address
    options = IngressOptions.of(
        http_options, grpc_options, proxy_location, tracing_config, launcher
    )
    if addresses is not None and options.addresses() is not None:
        raise UsageError(
            "start() was given an address and options that name a host or port; leave one out"
        )
    variables = {} if logs is None else environment_of_logs(logs)
    open_session(addresses, options=options, environment=variables)


def shutdown(*, grace_s: float = SHUTDOWN_GRACE_S) -> None:
    """Drain every replica and end the mesh. Does nothing when there is none, or none any more.

    Applications of local testing mode end too. A mesh that this process has not used is left
    alone when it has such applications.

    Args:
        grace_s: How long calls in flight may take.

    Raises:
        MeshUnavailable: The controller is there and does not do it, or does not answer where
            ``PYSERVE_CONTROLLER`` says.
    """
    with _ENDING:
        was_local = _is_local()
        if was_local:
            from pyserve.driver.local import end_local

            end_local()
        session = current_session() if was_local else await_session()
        # One that was killed may have a successor, which has the mesh.
        while session is not None and not _end(session, grace_s):
            session = None if was_local else await_session()


def _end(session: Session, grace_s: float) -> bool:
    """Shut a mesh down; say whether its controller was there to do it."""
    try:
        session.shutdown(grace_s)
    except MeshUnavailable:
        if not wait_for_end(session.address, CONTROLLER_RETURN_TIMEOUT_S):
            raise
        return False
    finally:
        end_session()
    return True


async def shutdown_async(*, grace_s: float = SHUTDOWN_GRACE_S) -> None:
    """Do what ``shutdown`` does, while the running loop goes on."""
    await asyncio.to_thread(shutdown, grace_s=grace_s)


def status() -> MeshStatus:
    """Return what runs in the mesh, and in local testing mode.

    Raises:
        MeshNotFound: No mesh runs.
    """
    runtime = _find_local()
    if runtime is None:
        return read_status(_running().client.status())
    from pyserve.driver.local import local_status

    local = local_status(runtime.mesh)
    session = current_session()
    if session is None:
        return local
    found = read_status(session.client.status())
    return replace(found, applications={**found.applications, **local.applications})


def delete(
    name: str,
    _blocking: bool = True,  # As in Ray Serve; its end is waited for in any case.
) -> None:
    """Drain and end one application. One that does not run is a line in the log.

    Raises:
        MeshNotFound: No mesh runs.
    """
    application, runtime = ApplicationName(name), _find_local()
    if runtime is not None and application in runtime.mesh.applications:
        runtime.wait(runtime.mesh.delete(application))
        return
    session = _running() if runtime is None else find_session()
    try:
        if session is None:
            raise MeshNotFound(f"no application {name!r} runs in local testing mode")
        session.client.delete(application)
        session.serving.pop(application, None)
    except MeshNotFound as error:
        _LOGGER.warning("nothing is deleted: %s", error)


def deploy(
    session: Session,
    packed: PackedApplication,
    *,
    route_prefix: str | RoutePrefix | None,
    timeout_s: float | None,
    view: ProgressView | None = None,
    run: Run | None = None,
) -> tuple[str, ...]:
    """Deploy a packed application, show the progress, and return the ingress's addresses.

    Raises:
        DeploymentFailed: A replica could not be brought up.
        MeshError: The controller does not answer, or refuses.
    """
    asked = session.client.deploy(packed, route_prefix=route_prefix, timeout_s=timeout_s, run=run)
    with closing(asked) as events, view or progress_view(session.screen) as shown:
        for event in events:
            kind = event.WhichOneof("kind")
            if kind == "progress":
                shown.update(event.progress)
            elif kind == "notice":
                sys.stderr.write(f"pyserve: {event.notice}\n")
            elif kind == "deployed":
                session.await_view(event.deployed.view_version)
                return tuple(event.deployed.addresses)
            elif kind == "failed":
                failed = event.failed
                raise DeploymentFailed(failed.deployment, failed.summary, failed.traceback)
    raise MeshUnavailable(
        f"the controller ended while it deployed {packed.name!r}; its output says why"
    )


def _check_controller(options: ControllerOptions | Mapping[str, object] | None) -> None:
    if options is not None:
        ControllerOptions.of("controller_options", options)


def _packed(app: object, name: str, logs: LoggingConfig | None) -> PackedApplication:
    check_name("name", name)
    if isinstance(app, Deployment):
        raise KindError(f"run() takes an application; write {app.name}.bind(...)")
    if not isinstance(app, Application):
        raise KindError(f"run() takes what .bind(...) returns, not {app!r}")
    return pack(app, ApplicationName(name), logs)


def _running() -> Session:
    session = await_session()
    if session is None:
        raise not_found(
            read_settings().home,
            "start one with `pyserve run module:app` or pyserve.run(app), or name one in "
            "PYSERVE_CONTROLLER",
        )
    return session


def _deploy_here(packed: PackedApplication, timeout_s: float | None) -> None:
    # What serves replicas here is a quarter of the imports of a start.
    from pyserve.driver.local import open_local

    for each in packed.deployments:
        for line in lines_on_local(each.options):
            _LOGGER.warning("deployment %r: %s; see docs/guide/testing.md", each.name, line)
    runtime = open_local()
    runtime.wait(runtime.mesh.deploy(packed), timeout_s)


def _find_local() -> LocalRuntime | None:
    """Return what runs in this process, if anything does."""
    if local_attachment() is None:
        return None
    from pyserve.driver.local import find_local

    return find_local()


def _is_local() -> bool:
    return _find_local() is not None


def _is_local_replica() -> bool:
    return replica_context() is not None and _is_local()


def _block(is_running: Callable[[], bool]) -> None:
    never = threading.Event()
    try:
        while is_running():
            never.wait(_ALIVE_CHECK_S)
    except KeyboardInterrupt:
        sys.stderr.write("\npyserve: draining\n")
        shutdown()
    else:
        sys.stderr.write("pyserve: the mesh has ended\n")
