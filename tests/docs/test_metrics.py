"""The page of metrics has all that there are, and every name of Ray Serve."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from pyserve.cli.commands import commands as all_commands
from pyserve.observe.metrics.catalogue import METRICS
from pyserve.observe.metrics.families import TIME_BOUNDS_S

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "reference" / "metrics.md").read_text(encoding="utf-8")
GUIDE = (ROOT / "docs" / "guide" / "observing.md").read_text(encoding="utf-8")
_ROW = re.compile(r"^\| `(pyserve_\w+)` \|", re.MULTILINE)
# Ray Serve 2.60; what its proxies, routers, replicas and controller export.
RAY_SERVE = [
    "num_http_requests",
    "num_http_error_requests",
    "num_grpc_requests",
    "num_grpc_error_requests",
    "num_deployment_http_error_requests",
    "num_deployment_grpc_error_requests",
    "http_request_latency_ms",
    "grpc_request_latency_ms",
    "num_ongoing_http_requests",
    "num_ongoing_grpc_requests",
    "num_router_requests",
    "handle_request_counter",
    "deployment_queued_queries",
    "num_ongoing_requests_at_replicas",
    "num_scheduling_tasks",
    "num_scheduling_tasks_in_backoff",
    "request_router_fulfillment_time_ms",
    "request_router_queue_len",
    "router_args_resolution_latency_ms",
    "reserved_slots_active",
    "routing_stats_delay_ms",
    "routing_stats_error",
    "deployment_request_counter",
    "deployment_error_counter",
    "deployment_processing_latency_ms",
    "deployment_max_processing_latency_ms",
    "replica_processing_queries",
    "replica_utilization_percent",
    "deployment_replica_starts",
    "deployment_replica_healthy",
    "replica_startup_latency_ms",
    "replica_initialization_latency_ms",
    "replica_reconfigure_latency_ms",
    "replica_shutdown_duration_ms",
    "health_check_latency_ms",
    "health_check_failures_total",
    "batch_wait_time_ms",
    "batch_execution_time_ms",
    "batch_queue_length",
    "batch_utilization_percent",
    "actual_batch_size",
    "batches_processed",
    "multiplexed_model_load_latency_ms",
    "multiplexed_model_unload_latency_ms",
    "num_multiplexed_models",
    "registered_multiplexed_model_id",
    "multiplexed_get_model_requests_counter",
    "multiplexed_models_load_counter",
    "multiplexed_models_unload_counter",
    "autoscaling_desired_replicas",
    "autoscaling_target_replicas",
    "autoscaling_target_ongoing_requests",
    "autoscaling_total_requests",
    "autoscaling_policy_execution_time_ms",
    "autoscaling_handle_metrics_delay_ms",
    "autoscaling_replica_metrics_delay_ms",
    "user_autoscaling_stats_latency_ms",
    "deployment_status",
    "application_status",
    "proxy_status",
    "proxy_shutdown_duration_ms",
    "long_poll_latency_ms",
    "long_poll_pending_clients",
    "long_poll_host_transmission_counter",
    "controller_control_loop_duration_s",
    "controller_num_control_loops",
    "controller_sleep_duration_s",
    "num_compacted_nodes",
    "event_loop_scheduling_latency_ms",
    "event_loop_tasks",
    "event_loop_monitoring_iterations",
]


@pytest.mark.parity("G-78")
def test_the_page_has_every_metric_and_no_other() -> None:
    assert sorted(METRICS) == sorted(_ROW.findall(PAGE))


@pytest.mark.parity("G-78")
@pytest.mark.parametrize("name", RAY_SERVE)
def test_every_metric_of_ray_serve_has_its_counterpart_or_a_reason(name: str) -> None:
    mapped, left_out = PAGE.split("## What Ray Serve has and this has not")
    assert f"`serve_{name}`" in mapped or f"`serve_{name}`" in left_out


def test_the_bounds_are_those_of_the_code() -> None:
    told = re.search(r"have the bounds ([\d., ]+) milliseconds and so on to (\d+) seconds", PAGE)
    assert told is not None
    first = [float(each) / 1000 for each in told[1].split(",")]
    assert first == pytest.approx(TIME_BOUNDS_S[: len(first)])
    assert float(told[2]) == TIME_BOUNDS_S[-1]


def test_the_guide_names_metrics_that_there_are() -> None:
    suffixes = r"(_bucket|_count|_sum)?\b"
    named = {name for name, _ in re.findall(r"\b(pyserve_[a-z_]+?)" + suffixes, GUIDE)}
    assert named
    assert not named - METRICS.keys()


@pytest.mark.parity("S-88")
def test_the_list_for_debugging_names_what_there_is() -> None:
    """Resources, batches, blocking code and timeouts, each with a number to look at."""
    _, _, debugging = GUIDE.partition("## A list for debugging")
    rows = re.findall(r"^\| (\w[\w ]*) \| (.*?) \| (.*?) \| (.*?) \|$", debugging, re.MULTILINE)
    by_subject = {subject: where for subject, where, *_ in rows[1:]}
    assert {"resources", "batches", "async", "timeouts", "queue", "models"} <= by_subject.keys()
    for subject, where in by_subject.items():
        names = set(re.findall(r"`(pyserve_\w+)`", where))
        assert names <= METRICS.keys(), subject
        assert names or "`pyserve " in where, subject
    commands = set(re.findall(r"`pyserve ([a-z]+)", debugging))
    assert {"status", "logs", "doctor", "top", "cordon"} <= commands
    for command in commands:
        shown = CliRunner().invoke(all_commands, [command, "--help"])
        assert 0 == shown.exit_code, command
