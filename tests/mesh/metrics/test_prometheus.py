"""A real Prometheus finds a mesh by its list, and each metric of the page with a fair value."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from pyserve.observe.metrics.catalogue import METRICS
from tests.mesh.metrics.expressions import DEPLOY, alerts, of_dashboard
from tests.mesh.metrics.scraping import scrape
from tests.mesh.metrics.test_nodes import admin_of, environment, get
from tests.mesh.start.processes import END_TIMEOUT_S, address_of, application, standing
from tests.support.prometheus import Prometheus, running, why_not
from tests.support.waiting import wait_until

__all__ = ["environment"]

pytestmark = [
    pytest.mark.slow,
    pytest.mark.external,
    pytest.mark.timeout(180),
    pytest.mark.skipif(why_not() is not None, reason=str(why_not())),
]
EVERYTHING = "tests.mesh.metrics.apps:everything"
# What nobody does here: these are named by events that do not happen in a mesh at rest. Each is
# shown by a test of its own.
RARE = {
    "pyserve_ingress_access_decisions_total": "there are no access rules",
    "pyserve_autoscaling_policy_seconds": "there is no policy of a user's",
    "pyserve_user_values_dropped_total": "tags have few values",
    "pyserve_deployment_replica_ends_total": "no replica ends",
    "pyserve_certificate_end_time_seconds": "there are no certificates",
    "pyserve_call_spans_dropped_total": "nothing is traced",
    "pyserve_replica_route_answers_total": "no deployment is a web application",
    "pyserve_replica_route_seconds": "no deployment is a web application",
}
# Gauges and counters that are 0 in a mesh that is well; the others have counted something.
POSITIVE = (
    *("pyserve_ingress_calls_total", "pyserve_ingress_connections_max"),
    *("pyserve_router_calls_total", "pyserve_router_call_seconds_count"),
    *("pyserve_router_attempt_seconds_count", "pyserve_router_picks_total"),
    *("pyserve_router_prediction_error_seconds_count", "pyserve_router_request_bytes_total"),
    *("pyserve_replica_call_seconds_count", "pyserve_replica_health_checks_total"),
    *("pyserve_batch_size_sum", "pyserve_batches_total", "pyserve_batch_wait_seconds_count"),
    *("pyserve_steps_total", "pyserve_step_seconds_count", "pyserve_step_size_sum"),
    *("pyserve_step_first_value_seconds_count", "pyserve_step_value_seconds_count"),
    *("pyserve_step_admissions_total", "pyserve_step_budget_max"),
    *("pyserve_model_requests_total", "pyserve_model_load_seconds_count"),
    *("pyserve_models_loaded", "pyserve_model_evictions_total", "pyserve_model_reloads_total"),
    *("pyserve_autoscaling_target_replicas", "pyserve_deployment_wanted_replicas"),
    *("pyserve_deployment_replica_start_seconds_count", "pyserve_controller_step_seconds_count"),
    *("pyserve_process_cpu_seconds_total", "pyserve_process_resident_memory_bytes"),
    "pyserve_scrape_processes",
)


def configured(folder: Path, admin: str) -> Path:
    """Write a configuration as the guide shows it, only quicker."""
    path = folder / "prometheus.yml"
    config = {
        "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
        "rule_files": [str(DEPLOY / "alerts.yml")],
        "scrape_configs": [
            {
                "job_name": "pyserve",
                "http_sd_configs": [{"url": f"http://{admin}/-/targets", "refresh_interval": "5s"}],
            }
        ],
    }
    path.write_text(yaml.safe_dump(config))
    return path


@pytest.mark.parity("S-70")
@pytest.mark.parity("S-86")
@pytest.mark.parity("G-78")
def test_prometheus_finds_every_metric_of_the_page(
    environment: dict[str, str], tmp_path: Path
) -> None:
    with standing(environment), application(environment, EVERYTHING):
        admin, address = admin_of(environment), address_of(environment)
        with running(configured(tmp_path, admin)) as prometheus:
            for _ in range(2):
                assert 200 == get(address)
            ended = 'sum(pyserve_router_ended_calls_total{deployment="Models",code="OK"})'
            checked = "sum(pyserve_replica_health_checks_total)"
            wait_until(
                lambda: 24 == prometheus.value(ended) and prometheus.value(checked) > 0,
                END_TIMEOUT_S,
                "Prometheus has scraped the calls",
            )
            check_target(prometheus, admin)
            # Some of it comes with a later scrape.
            wait_until(lambda: set() == missing_names(prometheus), END_TIMEOUT_S)
            check_names(prometheus)
            wait_until(
                lambda: [] == [name for name in POSITIVE if not prometheus.value(name) > 0],
                END_TIMEOUT_S,
            )
            # 0.05 ms to a minute is where times of calls can be.
            mean_s = "pyserve_replica_call_seconds_sum / pyserve_replica_call_seconds_count > 0"
            values = [float(each["value"][1]) for each in prometheus.query(mean_s)]
            assert values
            assert all(5e-6 < value < 60 for value in values)
            check_expressions(prometheus)


def check_target(prometheus: Prometheus, admin: str) -> None:
    """One target for the node, found by the list, with its labels."""
    (target,) = prometheus.targets()
    assert ("up", f"http://{admin}/metrics") == (target["health"], target["scrapeUrl"])
    assert "ingress" == target["labels"]["pyserve_role"]
    assert 4 == prometheus.value('pyserve_scrape_processes{state="answered"}')


def expected_names() -> set[str]:
    """Return the names of all samples of the catalogue."""
    expected = set()
    for name, metric in METRICS.items():
        is_histogram = metric.kind == "histogram"
        expected |= {f"{name}_{s}" for s in ("bucket", "count", "sum")} if is_histogram else {name}
    return expected


def missing_names(prometheus: Prometheus) -> set[str]:
    """Return what of the catalogue has not been scraped yet."""
    rare = {f"{name}{s}" for name in RARE for s in ("", "_bucket", "_count", "_sum")}
    return expected_names() - prometheus.names() - rare


def check_names(prometheus: Prometheus) -> None:
    """The catalogue is what is scraped, no more and no less."""
    found = {name for name in prometheus.names() if name.startswith("pyserve_")}
    assert set() == found - expected_names()
    assert set() == missing_names(prometheus)
    # Metrics of user code are there under their own names.
    assert {"shop_words_total", "shop_level", "shop_sizes_bucket"} <= prometheus.names()


def check_expressions(prometheus: Prometheus) -> None:
    """Dashboard and alerts are computed without an error, and nothing is wrong with this mesh."""
    for _, expression in of_dashboard():
        prometheus.query(expression)
    rules = {rule["name"]: rule for rule in prometheus.rules()}
    assert {rule["alert"] for rule in alerts()} == rules.keys()
    assert {"ok"} == {rule["health"] for rule in rules.values()}
    wrong = {"PyserveControllerMissing", "PyserveDeploymentUnhealthy", "PyserveReplicasMissing"}

    def is_calm() -> bool:
        return {"inactive"} == {r["state"] for r in prometheus.rules() if r["name"] in wrong}

    # Until the first scrape there was no controller to be seen.
    wait_until(is_calm, END_TIMEOUT_S, "nothing is wrong with this mesh")


def test_all_samples_have_the_labels_of_the_page(environment: dict[str, str]) -> None:
    with standing(environment), application(environment, EVERYTHING):
        assert 200 == get(address_of(environment))
        page = scrape(admin_of(environment))
    for name, samples in page.samples.items():
        metric = METRICS.get(name) or METRICS.get(name.rpartition("_")[0])
        if metric is not None:
            allowed = {*metric.labels, "le"}
            for labels in samples:
                assert dict(labels).keys() <= allowed, name
