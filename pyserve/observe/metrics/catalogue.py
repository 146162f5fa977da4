"""Every metric of pyserve: its name, its kind, its labels, and what it says. Pure.

``docs/reference/metrics.md`` is made of it (``deploy/release/reference_tables.py``).
Labels are bounded by what is deployed: no request, model, path or client names one.
"""

from __future__ import annotations

from pyserve.observe.metrics.catalogue_replica import REPLICA
from pyserve.observe.metrics.metric import Metric, counter, gauge, histogram

__all__ = ["METRICS", "OF_COUNTS", "Metric"]

# The metrics that a controller brings.

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
    gauge("pyserve_autoscaling_total_cost", "What those of a continuously batched class cost."),
    gauge(
        "pyserve_autoscaling_first_value_seconds",
        "How long callers waited for first values of late; 0 without a target for it.",
    ),
    gauge(
        "pyserve_autoscaling_value_seconds",
        "How long callers waited for each further value of late; 0 without a target for it.",
    ),
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
# Of every process, beside `role` and `pid`.
_OF_PROCESS = ("role", "pid", "application", "deployment", "replica")
# Whose calls, and who routes them: the ingress, a driver, or another deployment's replica.
_OF_ROUTER = ("application", "deployment", "caller", "caller_id")
_PROCESSES = (
    gauge("pyserve_info", "Always 1: a process of the mesh, and its version.", "version"),
    counter(
        "pyserve_process_cpu_seconds_total",
        "Processor time of the process.",
        otel="`process.cpu.time`",
    ),
    gauge(
        "pyserve_process_resident_memory_bytes",
        "Memory of the process that is in RAM.",
        otel="`process.memory.usage`",
    ),
    gauge(
        "pyserve_process_threads",
        "Threads of the process, native ones too.",
        otel="`process.thread.count`",
    ),
    gauge(
        "pyserve_process_open_fds",
        "Files and sockets that the process has open.",
        otel="`process.open_file_descriptor.count`",
    ),
    gauge("pyserve_process_max_fds", "Files and sockets that it may have open."),
    gauge("pyserve_process_start_time_seconds", "When it was started, Unix time."),
    counter(
        "pyserve_process_gc_collections_total", "Runs of Python's garbage collector.", "generation"
    ),
    counter(
        "pyserve_user_values_dropped_total",
        "Values of user code with too many combinations of tags.",
        "metric",
    ),
    gauge("pyserve_scrape_sources_failed", "Parts of the process that this scrape lacks."),
)
_CERTIFICATES = (
    gauge(
        "pyserve_certificate_end_time_seconds",
        "When the certificate ends that a process shows to clients or to others of the mesh, Unix "
        "time.",
        "certificate",
    ),
)
_NODE = (
    gauge("pyserve_scrape_processes", "Processes of the node, by whether they answered.", "state"),
    gauge("pyserve_scrape_duration_seconds", "How long the last gathering of them took."),
)
_INGRESS = (
    counter(
        "pyserve_ingress_calls_total",
        "Requests of all kinds that clients sent.",
        ray="`serve_num_http_requests`, `serve_num_grpc_requests` together",
    ),
    gauge("pyserve_ingress_open_calls", "Requests that have not ended."),
    counter(
        "pyserve_ingress_ended_calls_total",
        "Requests that ended, by whose answer they got: of a replica, of the ingress itself, or "
        "none because the client had left.",
        "by",
    ),
    gauge(
        "pyserve_ingress_open_requests",
        "Requests that have not ended.",
        "door",
        ray="`serve_num_ongoing_http_requests`, `serve_num_ongoing_grpc_requests`",
    ),
    counter(
        "pyserve_ingress_requests_total",
        "Requests that were answered, by protocol and class of the HTTP status; left: the client "
        "did. A code of gRPC counts by the status that stands for it.",
        "door",
        "status",
        ray="`serve_num_http_requests`, `serve_num_grpc_requests`; "
        "`serve_num_http_error_requests`, `serve_num_grpc_error_requests` by `status`",
        otel="`rpc.server.call.duration` (count), `grpc.server.call.started`",
    ),
    gauge("pyserve_ingress_connections", "Connections of clients that are open."),
    gauge("pyserve_ingress_connections_max", "How many there may be."),
    counter(
        "pyserve_ingress_limits_reached_total",
        "Connections and requests that a limit or a time ended.",
        "limit",
    ),
    counter(
        "pyserve_ingress_faults_total",
        "TLS handshakes that failed, PROXY headers that could not be read, and requests that "
        "failed by a defect.",
        "fault",
    ),
    counter(
        "pyserve_ingress_access_decisions_total", "Calls that access rules judged.", "decision"
    ),
)
_ROUTER = (
    counter(
        "pyserve_router_calls_total",
        "Calls that were offered to a deployment.",
        ray="`serve_num_router_requests`, `serve_handle_request_counter`",
        counts={"offered": ""},
    ),
    gauge(
        "pyserve_router_parked_calls",
        "Calls that wait for a replica.",
        ray="`serve_deployment_queued_queries`, `serve_num_scheduling_tasks`",
        counts={"parked": ""},
    ),
    gauge(
        "pyserve_router_calls_waiting_for_model",
        "Those that wait for one with their model.",
        counts={"waiting_for_model": ""},
    ),
    gauge(
        "pyserve_router_in_flight_calls",
        "Calls that replicas have.",
        "replica",
        ray="`serve_num_ongoing_requests_at_replicas`, `serve_request_router_queue_len`",
    ),
    counter(
        "pyserve_router_attempts_total",
        "Calls that were sent to a replica, again or first.",
        otel="`grpc.client.attempt.started`",
        counts={"sent": "", "leased": ""},
    ),
    counter(
        "pyserve_router_model_misses_total",
        "Attempts with a model at replicas that did not have it, and were not about to.",
        counts={"model_misses": ""},
    ),
    counter(
        "pyserve_router_cache_keys_found_total",
        "Cache entries that calls named and that the replica they were sent to had.",
        counts={"cache_hits": ""},
    ),
    counter(
        "pyserve_router_cache_keys_missed_total",
        "Those that it did not have, and was not about to.",
        counts={"cache_misses": ""},
    ),
    gauge(
        "pyserve_router_cache_index_keys",
        "Cache entries of replicas that the router knows of.",
        counts={"cache_keys": ""},
    ),
    gauge(
        "pyserve_router_cache_index_bytes",
        "The memory that they take.",
        counts={"cache_bytes": ""},
    ),
    counter(
        "pyserve_router_cache_keys_forgotten_total",
        "Cache entries that the router has forgotten because it may not know of more.",
        counts={"cache_forgotten": ""},
    ),
    counter(
        "pyserve_router_ended_attempts_total",
        "Attempts by how they ended: completed, failed, late, refused (the replica was full), "
        "connect_failed.",
        "outcome",
        counts={
            "completed": "completed",
            "failed": "failed",
            "late": "late",
            "refusals": "refused",
            "connect_failures": "connect_failed",
        },
    ),
    counter(
        "pyserve_router_unsent_calls_total",
        "Calls that ended without a replica: queue_full, expired, unreachable, cancelled, "
        "abandoned.",
        "reason",
        counts={
            "refused_by_queue": "queue_full",
            "expired": "expired",
            "unreachable": "unreachable",
            "cancelled": "cancelled",
            "abandoned": "abandoned",
        },
    ),
    histogram(
        "pyserve_router_call_seconds",
        "How long whole calls took; failed: by a replica's fault, or none took them.",
        "outcome",
        ray="`serve_http_request_latency_ms`, `serve_grpc_request_latency_ms`, with "
        '`caller="ingress"`',
        otel="`rpc.client.call.duration`, `grpc.client.call.duration`",
    ),
    histogram(
        "pyserve_router_parked_seconds",
        "How long calls waited in the router.",
        ray="`serve_request_router_fulfillment_time_ms`",
    ),
    counter(
        "pyserve_router_kept_wrongly_seconds_total",
        "How long replicas worked while calls were kept from them that they could have taken.",
    ),
    histogram(
        "pyserve_router_attempt_seconds",
        "How long attempts took.",
        "replica",
        otel="`grpc.client.attempt.duration`",
    ),
    histogram(
        "pyserve_router_prediction_error_seconds",
        "By how much answers came earlier or later than the router had predicted.",
        "direction",
    ),
    counter("pyserve_router_picks_total", "Attempts by the replica that was picked.", "replica"),
    counter("pyserve_router_tier_picks_total", "Attempts by how near it is.", "tier"),
    counter("pyserve_router_releases_total", "Parked calls that were sent, by why.", "reason"),
    counter("pyserve_router_refused_calls_total", "Calls that no replica took, by why.", "reason"),
    counter(
        "pyserve_router_ended_calls_total",
        "Calls by how they ended: gRPC's code, the class of HTTP's status, or left.",
        "code",
        ray="`serve_num_deployment_http_error_requests`, "
        "`serve_num_deployment_grpc_error_requests` by `code`",
    ),
    counter(
        "pyserve_router_request_bytes_total",
        "Bytes of requests.",
        otel="`grpc.client.attempt.sent_total_compressed_message_size` (sum)",
    ),
    counter(
        "pyserve_router_response_bytes_total",
        "Bytes of answers.",
        otel="`grpc.client.attempt.rcvd_total_compressed_message_size` (sum)",
    ),
    counter(
        "pyserve_router_retries_total",
        "Further attempts of calls that had started.",
        otel="`grpc.client.call.retries`",
        counts={"retries": ""},
    ),
    counter(
        "pyserve_router_retries_refused_total",
        "Those that the budget had nothing left for.",
        counts={"retries_refused": ""},
    ),
    counter(
        "pyserve_router_hedges_total",
        "Second places of slow calls.",
        otel="`grpc.client.call.hedges`",
        counts={"hedges": ""},
    ),
    counter(
        "pyserve_router_ejections_total",
        "How often a replica was left out.",
        otel="`grpc.lb.outlier_detection.ejections_enforced`",
        counts={"ejections": ""},
    ),
)
_RECORDS = (
    counter(
        "pyserve_call_records_total",
        "Finished calls of which a record was kept: sampled, failed, slow ones, or asked for.",
    ),
    counter(
        "pyserve_call_records_dropped_total",
        "Unsampled ones that nobody took in time, as is usual while nobody looks.",
    ),
    counter(
        "pyserve_call_spans_dropped_total",
        "Sampled calls without spans, because more came than could be made.",
    ),
)


def _with(metrics: tuple[Metric, ...], labels: tuple[str, ...]) -> tuple[Metric, ...]:
    return tuple(metric.with_labels(labels) for metric in metrics)


METRICS: dict[str, Metric] = {
    metric.name: metric
    for metric in (
        *_with(_PROCESSES, _OF_PROCESS),
        *_with(_CERTIFICATES, _OF_PROCESS[1:]),
        *_NODE,
        *_INGRESS,
        *_with(_ROUTER, _OF_ROUTER),
        *_with(_RECORDS, ("caller", "caller_id")),
        *REPLICA,
        *CONTROL,
    )
}
# Metrics that add up counts of routers, see ``Metric.counts``.
OF_COUNTS = tuple(metric for metric in METRICS.values() if metric.counts)
