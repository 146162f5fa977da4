"""The metrics that a replica brings. Pure."""

from __future__ import annotations

from pyserve.observe.metrics.metric import Metric, counter, gauge, histogram

_OF_REPLICA = ("application", "deployment", "replica")

_CALLS = (
    gauge("pyserve_replica_in_flight_calls", "Calls that the replica has now."),
    gauge("pyserve_replica_calls_max", "How many it may have at once."),
    counter("pyserve_replica_calls_total", "Calls that it has let in."),
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
    ),
    counter(
        "pyserve_replica_ended_calls_total",
        "Calls by how they ended: gRPC's code, the class of HTTP's status, or left.",
        "method",
        "code",
    ),
    histogram(
        "pyserve_replica_route_seconds",
        "How long requests took in a FastAPI application, by the templates of its routes.",
        "route",
    ),
    counter(
        "pyserve_replica_route_answers_total",
        "The same by how they ended: the class of the status, or left without an answer.",
        "route",
        "code",
    ),
    counter("pyserve_replica_request_bytes_total", "Bytes of their messages.", "method"),
    counter("pyserve_replica_response_bytes_total", "Bytes of their answers.", "method"),
    gauge("pyserve_replica_connections", "Connections of routers and clients that are open."),
)
_LIFE = (
    gauge(
        "pyserve_replica_initialization_seconds",
        "How long it took from the controller's word until the replica was ready.",
    ),
    histogram("pyserve_replica_reconfigure_seconds", "How long a new user_config took."),
    histogram("pyserve_replica_health_check_seconds", "How long health checks took."),
    counter("pyserve_replica_health_checks_total", "Health checks by result.", "result"),
    counter("pyserve_replica_loop_stalls_total", "How often code held the event loop for long."),
    counter("pyserve_replica_loop_stall_seconds_total", "For how long together."),
    counter("pyserve_replica_loop_events_total", "What native threads told the event loop."),
    counter("pyserve_replica_loop_wakeups_total", "How often the loop had to be woken for it."),
    gauge("pyserve_replica_loop_queue_length_max", "The most that ever waited for the loop."),
)
_BATCHES = (
    histogram(
        "pyserve_batch_wait_seconds",
        "How long the oldest call of each batch waited for it to leave.",
        "function",
    ),
    histogram("pyserve_batch_execution_seconds", "How long batches took.", "function"),
    histogram("pyserve_batch_size", "Calls of a batch.", "function"),
    gauge("pyserve_batch_size_max", "The most that a batch may have.", "function"),
    counter("pyserve_batches_total", "Batches by why they left.", "function", "reason"),
    counter("pyserve_batches_failed_total", "Batches whose function raised.", "function"),
    counter(
        "pyserve_batch_dropped_calls_total",
        "Calls that left without a batch: cancelled, expired, hopeless, oversized.",
        "function",
        "reason",
    ),
    gauge("pyserve_batch_waiting_calls", "Calls that wait for a batch.", "function"),
    gauge("pyserve_batch_running", "Batches that run.", "function"),
)
_MODELS = (
    counter(
        "pyserve_model_requests_total",
        "Uses of models by whether they were loaded (hit) or waited for a load (miss).",
        "function",
        "result",
    ),
    histogram("pyserve_model_load_seconds", "How long loads took that succeeded.", "function"),
    histogram("pyserve_model_unload_seconds", "How long models took to let go.", "function"),
    counter(
        "pyserve_model_loads_total",
        "Loads by outcome: loaded, failed, cancelled (nobody waited any more), dropped (no room).",
        "function",
        "outcome",
    ),
    counter("pyserve_model_evictions_total", "Models that made room for others.", "function"),
    counter("pyserve_model_unloads_total", "Models that were unloaded on demand.", "function"),
    counter(
        "pyserve_model_reloads_total",
        "Loads that twice the room for models would have saved: many mean thrashing.",
        "function",
    ),
    gauge("pyserve_models_loaded", "Models that are loaded.", "function"),
    gauge("pyserve_models_max", "How many there may be, loading ones too.", "function"),
    gauge("pyserve_models_bytes", "What they take, as far as it is known.", "function"),
    gauge("pyserve_models_loading", "Loads under way.", "function"),
    gauge("pyserve_models_waiting", "Loads that wait for room.", "function"),
    gauge("pyserve_models_held", "Models that are in use or pinned, and stay.", "function"),
)

REPLICA: tuple[Metric, ...] = tuple(
    metric.with_labels(_OF_REPLICA) for metric in (*_CALLS, *_LIFE, *_BATCHES, *_MODELS)
)
