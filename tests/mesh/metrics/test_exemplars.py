"""A trace that a client has begun is found from the histograms in which its calls were counted."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from tests.mesh.start.processes import status_of
from tests.support.mesh import running_mesh
from tests.support.otlp import otlp_receiver
from tests.support.waiting import wait_until

pytestmark = pytest.mark.slow
TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
OPENMETRICS = {"accept": "application/openmetrics-text; version=1.0.0"}


def marks(admin: str) -> list[tuple[str, str, Any]]:
    """Return called deployment, caller and exemplar of each bucket that has one."""
    page = httpx.get(f"http://{admin}/metrics", headers=OPENMETRICS, timeout=20, trust_env=False)
    return [
        (sample.labels["deployment"], sample.labels["caller"], sample.exemplar)
        for family in text_string_to_metric_families(page.text)
        if family.name == "pyserve_router_call_seconds"
        for sample in family.samples
        if sample.exemplar is not None
    ]


def test_a_sampled_call_and_those_of_handles_in_it_are_exemplars_in_openmetrics() -> None:
    with otlp_receiver() as receiver:
        variables = {**receiver.environment(), "PYSERVE_METRICS_PORT": "0"}
        with running_mesh("tests.mesh.metrics.apps:shop", environment=variables) as mesh:
            sampled = {"traceparent": f"00-{TRACE}-00f067aa0ba902b7-01"}
            answer = httpx.get(
                f"http://{mesh.address}/", headers=sampled, timeout=30, trust_env=False
            )
            assert 200 == answer.status_code
            (ingress,) = status_of({"PYSERVE_HOME": str(mesh.home)})["ingresses"]
            # Of its own calls a replica takes the records a quarter of a second later.
            wanted = {("Shop", "ingress"), ("Prices", "default/Shop")}
            wait_until(lambda: wanted == {each[:2] for each in marks(ingress["admin"])}, 20, "both")
            found = marks(ingress["admin"])
    for _, _, exemplar in found:
        assert TRACE == exemplar.labels["trace_id"]
        assert 0 < exemplar.value < 30
