"""The metrics that a controller brings. Pure."""

from __future__ import annotations

from pyserve.observe.metrics.metric import Metric, counter, gauge, histogram

_OF_DEPLOYMENT = ("application", "deployment")

_DEPLOYMENTS = (
    gauge(
        "pyserve_deployment_status",
        "1 for the status that the deployment has.",
        "status",
        ray="`serve_deployment_status`",
    ),
    gauge("pyserve_deployment_wanted_replicas", "Replicas that there shall be."),
    gauge(
        "pyserve_deployment_replicas",
        "Replicas by state: STARTING, RUNNING, STOPPING; of those that run SILENT, UNHEALTHY, "
        "CORDONED.",
        "state",
    ),
    gauge(
        "pyserve_deployment_replica_healthy",
        "1 for a replica that runs and passes its checks, 0 for others.",
        "replica",
        ray="`serve_deployment_replica_healthy`",
    ),
    counter(
        "pyserve_deployment_replica_starts_total",
        "Replicas that were started.",
        ray="`serve_deployment_replica_starts`",
    ),
    counter("pyserve_deployment_replica_ready_total", "Those of them that became ready."),
    counter(
        "pyserve_deployment_replica_ends_total",
        "Replicas that ended, by how: stopped in order, killed, died, or failed to start.",
        "how",
    ),
    histogram(
        "pyserve_deployment_replica_start_seconds",
        "From a start to a ready replica.",
        ray="`serve_replica_startup_latency_ms`",
    ),
    histogram(
        "pyserve_deployment_replica_stop_seconds",
        "From the word to stop to the end.",
        ray="`serve_replica_shutdown_duration_ms`",
    ),
)
_SCALING = (
    gauge(
        "pyserve_autoscaling_target_replicas",
        "Replicas that autoscaling wants.",
        ray="`serve_autoscaling_target_replicas`",
    ),
    gauge(
        "pyserve_autoscaling_pending_replicas",
        "How many it would want but for a delay.",
        ray="`serve_autoscaling_desired_replicas`",
    ),
    gauge("pyserve_autoscaling_min_replicas", "The least that it may want."),
    gauge("pyserve_autoscaling_max_replicas", "The most that it may want."),
    gauge(
        "pyserve_autoscaling_target_ongoing_calls",
        "Calls that a replica shall have.",
        ray="`serve_autoscaling_target_ongoing_requests`",
    ),
    gauge(
        "pyserve_autoscaling_total_calls",
        "Calls that it reckons with: running and waiting.",
        ray="`serve_autoscaling_total_requests`",
    ),
    gauge("pyserve_autoscaling_parked_calls", "Those of them that wait in routers."),
    gauge("pyserve_autoscaling_replica_start_seconds", "How long it expects a start to take."),
    counter("pyserve_autoscaling_decisions_total", "Changes of the target.", "direction"),
    counter("pyserve_autoscaling_failures_total", "Answers of a user's policy that were none."),
    histogram(
        "pyserve_autoscaling_policy_seconds",
        "How long a user's policy took to answer.",
        ray="`serve_autoscaling_policy_execution_time_ms`",
    ),
)
_MESH = (
    gauge(
        "pyserve_application_status",
        "1 for the status that the application has.",
        "application",
        "status",
        ray="`serve_application_status`",
    ),
    gauge(
        "pyserve_ingress_status",
        "1 for the state that the ingress has.",
        "ingress_node",
        "ingress_pid",
        "status",
        ray="`serve_proxy_status`",
    ),
    histogram(
        "pyserve_controller_step_seconds",
        "How long the controller's steps took.",
        ray="`serve_controller_control_loop_duration_s`, `serve_controller_num_control_loops`",
    ),
    gauge(
        "pyserve_controller_watchers",
        "Routers that follow the controller's view.",
        ray="`serve_long_poll_pending_clients`",
    ),
    gauge("pyserve_controller_view_version", "How often that view has changed."),
    counter(
        "pyserve_controller_updates_total",
        "Updates of it that were queued for routers.",
        ray="`serve_long_poll_host_transmission_counter`",
    ),
    gauge("pyserve_controller_lagging_watchers", "Routers that are to get it whole again."),
)

CONTROL: tuple[Metric, ...] = (
    *(metric.with_labels(_OF_DEPLOYMENT) for metric in (*_DEPLOYMENTS, *_SCALING)),
    *_MESH,
)
