"""Handles by name, from drivers and replicas alike; and several applications at once."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pyserve.aio.mesh_channel import dial, proof
from pyserve.api.context import attached, local_attachment, replica_context
from pyserve.api.deployment import Application
from pyserve.api.handles.handle import DeploymentHandle
from pyserve.config import ControllerOptions, LoggingConfig
from pyserve.config.http import RoutePrefix
from pyserve.driver.status import ApplicationStatusOverview, MeshStatus, read_status
from pyserve.errors import KindError, MeshNotFound, MeshUnavailable, UsageError
from pyserve.routing.in_process import InProcessRouter
from pyserve.types import ApplicationName, DeploymentKey, DeploymentName
from pyserve.wire.v1 import control_pb2, control_pb2_grpc

_LOGGER = logging.getLogger(__name__)
# A controller answers in milliseconds; ten seconds cover one that is swapped out.
_ANSWER_TIMEOUT_S = 10.0


@dataclass(frozen=True, slots=True)
class RunTarget:
    """One application for ``run_many``.

    Attributes:
        target: What ``bind`` returned.
        name: Its name in the mesh.
        route_prefix: Where plain HTTP reaches it; ``None``: nowhere; see ``run``.
        logging_config: See ``run``.
        external_scaler_enabled: See ``run``.
    """

    target: Application
    name: str = "default"
    route_prefix: str | RoutePrefix | None = RoutePrefix.DEFAULT
    logging_config: LoggingConfig | Mapping[str, object] | str | None = None
    external_scaler_enabled: bool = False


def run_many(
    targets: Sequence[RunTarget],
    blocking: bool = False,
    wait_for_ingress_deployment_creation: bool = True,
    wait_for_applications_running: bool = True,
    _local_testing_mode: bool = False,
    controller_options: ControllerOptions | Mapping[str, object] | None = None,
    *,
    timeout_s: float | None = None,
    local_testing_mode: bool = False,
) -> list[DeploymentHandle]:
    """Deploy several applications and wait until every replica is ready.

    Args:
        targets: The applications; their names must differ.
        blocking: Wait until Ctrl-C, then shut down.
        wait_for_ingress_deployment_creation: As Ray Serve has it; it is waited for in any case.
        wait_for_applications_running: The same.
        controller_options: See ``ControllerOptions``.
        timeout_s: How long to wait for the replicas of each; ``None``: see ``run``.
        local_testing_mode: Run in this process; see ``run``.

    Returns:
        A handle of each application's deployment, in the order of ``targets``.

    Raises:
        DeploymentFailed: A replica could not be brought up; what came before runs.
        MeshError: The mesh cannot be reached or started.
        UsageError: Two have the same name.
        KindError: One is no ``RunTarget``.
    """
    from pyserve.driver import api

    if not (wait_for_ingress_deployment_creation and wait_for_applications_running):
        _LOGGER.warning(
            "run_many: wait_for_... has no effect: applications are waited for in any case; see "
            "docs/reference/ray-serve.md"
        )
    given: Sequence[object] = targets
    if strange := [each for each in given if not isinstance(each, RunTarget)]:
        raise KindError(f"run_many: {strange[0]!r} is no RunTarget; write RunTarget(Class.bind())")
    names = [each.name for each in targets]
    if twice := {name for name in names if names.count(name) > 1}:
        raise UsageError(
            f"run_many: {', '.join(sorted(twice))} is the name of several applications; give "
            f"each RunTarget a name of its own"
        )
    last = len(targets) - 1
    return [
        api.run(
            each.target,
            name=each.name,
            route_prefix=each.route_prefix,
            blocking=blocking and index == last,
            logging_config=each.logging_config,
            external_scaler_enabled=each.external_scaler_enabled,
            controller_options=controller_options,
            timeout_s=timeout_s,
            local_testing_mode=local_testing_mode or _local_testing_mode,
        )
        for index, each in enumerate(targets)
    ]


def get_app_handle(name: str) -> DeploymentHandle:
    """Return the handle that ``run`` returned for an application.

    Works in drivers and in replicas, blocks the thread for some milliseconds.

    Args:
        name: The application's.

    Raises:
        MeshNotFound: No mesh runs, or it has no such application.
    """
    return DeploymentHandle(_application(name).ingress_deployment, name)


def get_deployment_handle(
    deployment_name: str,
    app_name: str | None = None,
    _check_exists: bool = True,  # As in Ray Serve.
    _record_telemetry: bool = True,  # The same; nothing is recorded.
) -> DeploymentHandle:
    """Return a handle of a deployment by its name.

    In a replica, which follows the mesh, that costs nothing: handlers may ask for each request. A
    driver asks the controller, and so does a replica about a name that it does not know.

    Args:
        deployment_name: Unique in its application.
        app_name: The application's; by default that of this replica, in drivers ``default``.

    Raises:
        MeshNotFound: No mesh runs, or it has no such application or deployment.
    """
    if app_name is None:
        replica = replica_context()
        app_name = "default" if replica is None else replica.app_name
    if _check_exists and not _is_known(app_name, deployment_name):
        deployments = _application(app_name).deployments
        if deployment_name not in deployments:
            raise MeshNotFound(
                f"application {app_name!r} has no deployment {deployment_name!r}; it has "
                f"{', '.join(sorted(deployments))}"
            )
    return DeploymentHandle(deployment_name, app_name)


def _is_known(application: str, deployment: str) -> bool:
    mesh = attached()
    if replica_context() is None or not isinstance(mesh, InProcessRouter):
        return False
    key = DeploymentKey(ApplicationName(application), DeploymentName(deployment))
    return mesh.knows(key)


def _application(name: str) -> ApplicationStatusOverview:
    found = _status().applications
    if name not in found:
        raise MeshNotFound(
            f"no application {name!r} runs; there is {', '.join(sorted(found)) or 'none'}"
        )
    return found[name]


def _status() -> MeshStatus:
    """Return what runs; a replica asks the controller itself, without grpcio's threads."""
    if replica_context() is None or local_attachment() is not None:
        # With all that drivers need; a replica would hold its loop with the import.
        from pyserve.driver import api

        return api.status()
    mesh = attached()
    assert isinstance(mesh, InProcessRouter)
    asked = asyncio.run_coroutine_threadsafe(_ask(mesh), mesh.calls_loop())
    return read_status(asked.result())  # Bounded by the deadline of the call.


async def _ask(mesh: InProcessRouter) -> control_pb2.StatusReply:
    controller = mesh.controller
    async with dial(controller.controller, mesh.tls) as channel:
        stub = control_pb2_grpc.ControlStub(channel)
        try:
            reply: control_pb2.StatusReply = await stub.Status(
                control_pb2.StatusRequest(),
                metadata=proof(controller.token),
                timeout=_ANSWER_TIMEOUT_S,
            )
        except Exception as error:
            raise MeshUnavailable(
                f"the controller at {controller.controller} does not answer: {error}"
            ) from error
    return reply
