"""A trace that a client has begun is found from the histogram in which its call was counted."""

from __future__ import annotations

import httpx
import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from tests.mesh.start.processes import status_of
from tests.support.mesh import running_mesh
from tests.support.otlp import otlp_receiver

pytestmark = pytest.mark.slow
TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
OPENMETRICS = {"accept": "application/openmetrics-text; version=1.0.0"}


def test_a_sampled_call_is_an_exemplar_in_openmetrics() -> None:
    with otlp_receiver() as receiver:
        variables = {**receiver.environment(), "PYSERVE_METRICS_PORT": "0"}
        with running_mesh("tests.mesh.metrics.apps:shop", environment=variables) as mesh:
            sampled = {"traceparent": f"00-{TRACE}-00f067aa0ba902b7-01"}
            answer = httpx.get(f"http://{mesh.address}/", headers=sampled, timeout=30)
            assert 200 == answer.status_code
            (ingress,) = status_of({"PYSERVE_HOME": str(mesh.home)})["ingresses"]
            page = httpx.get(f"http://{ingress['admin']}/metrics", headers=OPENMETRICS, timeout=20)
    marks = [
        (sample.labels["deployment"], sample.exemplar)
        for family in text_string_to_metric_families(page.text)
        if family.name == "pyserve_router_call_seconds"
        for sample in family.samples
        if sample.exemplar is not None
    ]
    ((deployment, exemplar),) = marks
    assert ("Shop", TRACE) == (deployment, exemplar.labels["trace_id"])
    assert 0 < exemplar.value < 30
