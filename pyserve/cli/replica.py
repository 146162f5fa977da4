"""``pyserve replica``: one replica that no launcher of the mesh has started."""

from __future__ import annotations

import difflib
import sys
import time
from typing import TYPE_CHECKING

import click

from pyserve.admin import showing_metrics
from pyserve.aio.certificates import mesh_tls
from pyserve.api.graph import pack
from pyserve.cli.settings import prefix_option, read_prefix
from pyserve.cli.target import load_application, parse_arguments
from pyserve.config import MeshSettings, check_name, read_settings
from pyserve.config.http import RoutePrefix
from pyserve.control.discovery import find_mesh, not_found
from pyserve.driver.client import spec_of
from pyserve.driver.session import warn_of_unknown_names
from pyserve.observe.logs.formats import said
from pyserve.observe.metrics import ProcessMetrics
from pyserve.replica.process import prepare_process, run_worker
from pyserve.replica.worker import WorkerSettings
from pyserve.types import ApplicationName, DeploymentName, MeshAddress, ReplicaId
from pyserve.wire.v1 import mesh_pb2

if TYPE_CHECKING:
    from pyserve.api.graph import PackedApplication, PackedDeployment


@click.command(short_help="Run one replica that joins a mesh by itself.")
@click.argument("target", metavar="MODULE:ATTRIBUTE")
@click.argument("arguments", nargs=-1, metavar="[KEY=VALUE]...")
@click.option("--deployment", required=True, metavar="NAME", help="Which of its deployments.")
@click.option(
    "--application", default="default", show_default=True, help="Name of the application."
)
@prefix_option
def replica(
    target: str,
    arguments: tuple[str, ...],
    deployment: str,
    application: str,
    route_prefix: str | None,
) -> None:
    """Run one replica of one deployment until SIGTERM or Ctrl-C.

    MODULE:ATTRIBUTE and KEY=VALUE are as for `pyserve run`. The replica joins the mesh of the
    controller that PYSERVE_CONTROLLER names, with the token in PYSERVE_TOKEN_FILE, or the one that
    runs in PYSERVE_HOME. There the application consists of the replicas that have joined: as many
    of each deployment as somebody starts.
    """
    check_name("--application", application)
    prefix = read_prefix(route_prefix)
    prepare_process()
    settings = read_settings()
    warn_of_unknown_names()
    controller = find_mesh(settings)
    if controller is None:
        advice = "start one with `pyserve start`, or name its controller with PYSERVE_CONTROLLER"
        raise not_found(settings.home, advice)
    loaded = load_application(target, parse_arguments(arguments))
    packed = pack(loaded, ApplicationName(application))
    external = _external(packed, _find(packed, deployment), prefix)
    line = f"a replica of {deployment} joins {controller.controller}"
    click.echo(said(line, settings.logs.encoding, "replica"), err=True)
    with showing_metrics(settings, controller.controller, controller.token) as (metrics, admin):
        worker = _worker_settings(controller, settings, external, metrics, admin)
        status = run_worker(worker)
    sys.exit(status)


def _find(packed: PackedApplication, name: str) -> PackedDeployment:
    for each in packed.deployments:
        if each.name == name:
            return each
    names = [each.name for each in packed.deployments]
    near = difflib.get_close_matches(name, names, n=1)
    meant = f"; did you mean {near[0]}?" if near else ""
    raise click.UsageError(
        f"--deployment {name}: the application has no deployment of that name, but "
        f"{', '.join(names)}{meant}"
    )


def _external(
    packed: PackedApplication, deployment: PackedDeployment, prefix: str | RoutePrefix | None
) -> mesh_pb2.External:
    return mesh_pb2.External(
        spec=spec_of(packed, deployment),
        ingress_deployment=packed.ingress,
        route_prefix=RoutePrefix.text(prefix),
        route_prefix_is_default=isinstance(prefix, RoutePrefix),
        started_at=time.time(),
    )


def _worker_settings(
    controller: MeshAddress,
    settings: MeshSettings,
    external: mesh_pb2.External,
    metrics: ProcessMetrics,
    admin: str,
) -> WorkerSettings:
    return WorkerSettings(
        controller=controller.controller,
        token=controller.token,
        application=ApplicationName(external.spec.application),
        deployment=DeploymentName(external.spec.name),
        replica_id=ReplicaId(""),
        mesh=settings,
        tls=mesh_tls(settings.node.tls),
        external=external,
        metrics=metrics,
        admin=admin,
    )
