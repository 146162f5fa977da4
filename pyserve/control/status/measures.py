"""A controller's metrics of its mesh. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from pyserve.control.state.replica_index import ReplicaCounts
from pyserve.control.views.registry import WatchCounts
from pyserve.observe.metrics import Scrape, Tally
from pyserve.types import DeploymentKey
from pyserve.wire.v1 import control_pb2

_HEALTHY = "RUNNING"


def add_mesh(
    scrape: Scrape,
    reply: control_pb2.StatusReply,
    counts: Mapping[DeploymentKey, ReplicaCounts],
) -> None:
    """Add the health of applications and deployments, and counts of their replicas."""
    for application in reply.applications:
        name = "pyserve_application_status"
        scrape.add(name, 1, application=application.name, status=application.state)
        for deployment in application.deployments:
            _add_deployment(scrape, application.name, deployment)
    for key, counted in counts.items():
        labels = {"application": key.application, "deployment": key.deployment}
        scrape.add("pyserve_deployment_replica_starts_total", counted.starts, **labels)
        scrape.add("pyserve_deployment_replica_ready_total", counted.ready, **labels)
        times = counted.start_times
        scrape.add_histogram("pyserve_deployment_replica_start_seconds", times, **labels)
        times = counted.stop_times
        scrape.add_histogram("pyserve_deployment_replica_stop_seconds", times, **labels)
        for how, value in counted.ends.items():
            scrape.add("pyserve_deployment_replica_ends_total", value, how=how, **labels)


def _add_deployment(
    scrape: Scrape, application: str, deployment: control_pb2.DeploymentStatus
) -> None:
    labels = {"application": application, "deployment": deployment.name}
    scrape.add("pyserve_deployment_status", 1, status=deployment.state, **labels)
    scrape.add("pyserve_deployment_wanted_replicas", deployment.wanted, **labels)
    states = Counter({_HEALTHY: 0})
    for replica in deployment.replicas:
        states[replica.state] += 1
        is_healthy = replica.state == _HEALTHY
        name = "pyserve_deployment_replica_healthy"
        scrape.add(name, is_healthy, replica=replica.replica_id, **labels)
    for state, value in states.items():
        scrape.add("pyserve_deployment_replicas", value, state=state, **labels)


def add_controller(scrape: Scrape, steps: Tally, watching: WatchCounts) -> None:
    """Add the metrics of the controller itself."""
    scrape.add_histogram("pyserve_controller_step_seconds", steps)
    scrape.add("pyserve_controller_watchers", watching.watchers)
    scrape.add("pyserve_controller_lagging_watchers", watching.lagging)
    scrape.add("pyserve_controller_view_version", watching.version)
    scrape.add("pyserve_controller_updates_total", watching.updates)
