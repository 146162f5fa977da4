"""The metrics that a replica brings. Pure."""

from __future__ import annotations

from pyserve.observe.metrics.metric import Metric, counter, gauge, histogram

_OF_REPLICA = ("application", "deployment", "replica")

_CALLS = (
    gauge(
        "pyserve_replica_in_flight_calls",
        "Calls that the replica has now.",
        ray="`serve_replica_processing_queries`",
    ),
    gauge(
        "pyserve_replica_calls_max",
        "How many it may have at once.",
        ray="with `pyserve_replica_in_flight_calls`: `serve_replica_utilization_percent`",
    ),
    counter(
        "pyserve_replica_calls_total",
        "Calls that it has let in.",
        otel="`grpc.server.call.started`",
    ),
    counter("pyserve_replica_refused_calls_total", "Calls that it refused because it was full."),
    counter(
        "pyserve_replica_broken_calls_total",
        "Calls that ended without its answer: the client left, the deadline passed, it shut down.",
        "reason",
    ),
    histogram(
        "pyserve_replica_call_seconds",
        "How long calls took in the replica, from their heads to the ends of their answers.",
        "method",
        ray="`serve_deployment_processing_latency_ms`",
        otel="`rpc.server.call.duration`, `grpc.server.call.duration`",
    ),
    counter(
        "pyserve_replica_ended_calls_total",
        "Calls by how they ended: gRPC's code, the class of HTTP's status, or left.",
        "method",
        "code",
        ray="`serve_deployment_request_counter`; `serve_deployment_error_counter` by `code`",
    ),
    histogram(
        "pyserve_replica_route_seconds",
        "How long requests took in a FastAPI application, by the templates of its routes.",
        "route",
        otel="`http.server.request.duration` by `http.route`",
    ),
    counter(
        "pyserve_replica_route_answers_total",
        "The same by how they ended: the class of the status, or left without an answer.",
        "route",
        "code",
        ray="`serve_deployment_request_counter` by `route`",
    ),
    counter(
        "pyserve_replica_request_bytes_total",
        "Bytes of their messages.",
        "method",
        otel="`grpc.server.call.rcvd_total_compressed_message_size` (sum)",
    ),
    counter(
        "pyserve_replica_response_bytes_total",
        "Bytes of their answers.",
        "method",
        otel="`grpc.server.call.sent_total_compressed_message_size` (sum)",
    ),
    gauge("pyserve_replica_connections", "Connections of routers and clients that are open."),
    gauge("pyserve_replica_cache_keys", "Cache entries that it reports (`pyserve.cache`)."),
    counter(
        "pyserve_replica_cache_dropped_total",
        "Cache entries that it does not report because they are too many.",
    ),
)
_LIFE = (
    gauge(
        "pyserve_replica_initialization_seconds",
        "How long it took from the controller's word until the replica was ready.",
        ray="`serve_replica_initialization_latency_ms`",
    ),
    histogram(
        "pyserve_replica_reconfigure_seconds",
        "How long a new user_config took.",
        ray="`serve_replica_reconfigure_latency_ms`",
    ),
    histogram(
        "pyserve_replica_health_check_seconds",
        "How long health checks took.",
        ray="`serve_health_check_latency_ms`",
    ),
    counter(
        "pyserve_replica_health_checks_total",
        "Health checks by result.",
        "result",
        ray="`serve_health_check_failures_total` by `result`",
    ),
    counter("pyserve_replica_loop_stalls_total", "How often code held the event loop for long."),
    counter(
        "pyserve_replica_loop_stall_seconds_total",
        "For how long together.",
        ray="`serve_event_loop_scheduling_latency_ms`",
    ),
    counter(
        "pyserve_replica_loop_events_total",
        "What native threads told the event loop.",
        ray="`serve_event_loop_monitoring_iterations`",
    ),
    counter("pyserve_replica_loop_wakeups_total", "How often the loop had to be woken for it."),
    gauge(
        "pyserve_replica_loop_queue_length_max",
        "The most that ever waited for the loop.",
        ray="`serve_event_loop_tasks`",
    ),
)
_BATCHES = (
    histogram(
        "pyserve_batch_wait_seconds",
        "How long the oldest call of each batch waited for it to leave.",
        "function",
        ray="`serve_batch_wait_time_ms`",
    ),
    histogram(
        "pyserve_batch_execution_seconds",
        "How long batches took.",
        "function",
        ray="`serve_batch_execution_time_ms`",
    ),
    histogram(
        "pyserve_batch_size",
        "Calls of a batch.",
        "function",
        ray="`serve_actual_batch_size`",
    ),
    gauge(
        "pyserve_batch_size_max",
        "The most that a batch may have.",
        "function",
        ray="with `pyserve_batch_size`: `serve_batch_utilization_percent`",
    ),
    counter(
        "pyserve_batches_total",
        "Batches by why they left.",
        "function",
        "reason",
        ray="`serve_batches_processed`",
    ),
    counter("pyserve_batches_failed_total", "Batches whose function raised.", "function"),
    counter(
        "pyserve_batch_dropped_calls_total",
        "Calls that left without a batch: cancelled, expired, hopeless, oversized.",
        "function",
        "reason",
    ),
    gauge(
        "pyserve_batch_waiting_calls",
        "Calls that wait for a batch.",
        "function",
        ray="`serve_batch_queue_length`",
    ),
    gauge("pyserve_batch_running", "Batches that run.", "function"),
)
_STEPS = (
    counter("pyserve_steps_total", "Steps that were made.", "function"),
    histogram("pyserve_step_seconds", "How long steps took.", "function"),
    histogram("pyserve_step_size", "Requests that shared a step.", "function"),
    histogram(
        "pyserve_step_first_value_seconds",
        "From the arrival of a request in the replica to its first value.",
        "function",
    ),
    histogram(
        "pyserve_step_value_seconds",
        "From one value of a request to its next, or from where its caller read on.",
        "function",
    ),
    gauge("pyserve_step_running_requests", "Requests that step.", "function"),
    gauge("pyserve_step_parked_requests", "Requests whose callers do not read.", "function"),
    gauge("pyserve_step_waiting_requests", "Requests that wait for admission.", "function"),
    gauge("pyserve_step_waiting_cost", "What these cost.", "function"),
    gauge("pyserve_step_budget_used", "What the states take of the budget.", "function"),
    gauge("pyserve_step_budget_max", "The budget; nothing without one.", "function"),
    counter("pyserve_step_admissions_total", "Requests that were admitted.", "function"),
    counter("pyserve_step_preemptions_total", "States that had to go for others.", "function"),
)
_MODELS = (
    counter(
        "pyserve_model_requests_total",
        "Uses of models by whether they were loaded (hit) or waited for a load (miss).",
        "function",
        "result",
        ray="`serve_multiplexed_get_model_requests_counter`",
    ),
    histogram(
        "pyserve_model_load_seconds",
        "How long loads took that succeeded.",
        "function",
        ray="`serve_multiplexed_model_load_latency_ms`",
    ),
    histogram(
        "pyserve_model_unload_seconds",
        "How long models took to let go.",
        "function",
        ray="`serve_multiplexed_model_unload_latency_ms`",
    ),
    counter(
        "pyserve_model_loads_total",
        "Loads by outcome: loaded, failed, cancelled (nobody waited any more), dropped (no room).",
        "function",
        "outcome",
        ray="`serve_multiplexed_models_load_counter`",
    ),
    counter("pyserve_model_evictions_total", "Models that made room for others.", "function"),
    counter(
        "pyserve_model_unloads_total",
        "Models that were unloaded on demand.",
        "function",
        ray="`serve_multiplexed_models_unload_counter`, with `pyserve_model_evictions_total`",
    ),
    counter(
        "pyserve_model_reloads_total",
        "Loads that twice the room for models would have saved: many mean thrashing.",
        "function",
    ),
    gauge(
        "pyserve_models_loaded",
        "Models that are loaded.",
        "function",
        ray="`serve_num_multiplexed_models`",
    ),
    gauge("pyserve_models_max", "How many there may be, loading ones too.", "function"),
    gauge("pyserve_models_bytes", "What they take, as far as it is known.", "function"),
    gauge("pyserve_models_loading", "Loads under way.", "function"),
    gauge("pyserve_models_waiting", "Loads that wait for room.", "function"),
    gauge("pyserve_models_held", "Models that are in use or pinned, and stay.", "function"),
)

REPLICA: tuple[Metric, ...] = tuple(
    metric.with_labels(_OF_REPLICA) for metric in (*_CALLS, *_LIFE, *_BATCHES, *_STEPS, *_MODELS)
)
