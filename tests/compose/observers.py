"""The profile ``observe`` of docker-compose.yml: what a service sends is at Prometheus."""

from __future__ import annotations

import json
import time
import urllib.parse
import urllib.request
from typing import Any

from tests.compose.project import Project
from tests.support.waiting import wait_until

_TIMEOUT_S = 90.0
_NEEDED = ("prometheus", "collector")
# As OpenTelemetry's SDK does it, from a container of the mesh and by the variable that it reads.
_SEND = """
import json, os, sys, urllib.request

place = os.environ["OTEL_EXPORTER_OTLP_ENDPOINT"].replace(":4317", ":4318") + "/v1/metrics"
head = {"content-type": "application/json"}
body = json.dumps(json.load(sys.stdin)).encode()
urllib.request.urlopen(urllib.request.Request(place, body, head), timeout=20).read()
"""


def observe(project: Project) -> None:
    """Start the observers, send a figure from a replica's container, and find it at Prometheus."""
    if missing := [name for name in _NEEDED if not project.has_image(name)]:
        print(f"SKIPPED the profile observe: no image of {' and '.join(missing)} is to be had")
        return
    project.compose("--profile", "observe", "up", "-d", "--no-recreate", *_NEEDED)
    wait_until(
        lambda: (
            _up(project) == dict.fromkeys(("pyserve", "services", "collector", "prometheus"), "1")
        ),
        _TIMEOUT_S,
        "Prometheus scrapes all that it shall",
    )
    project.compose("exec", "-T", "digits", "python", "-c", _SEND, given=json.dumps(_figure()))
    query = 'things_seen{service_name="digits"}'
    wait_until(lambda: _asked(project, query), _TIMEOUT_S, "the figure is at Prometheus")
    assert ["7"] == [each["value"][1] for each in _asked(project, query)]
    print("what a replica sends by OTLP is at Prometheus", flush=True)


def _figure() -> dict[str, Any]:
    point = {"asInt": "7", "timeUnixNano": str(time.time_ns())}
    metric = {"name": "things_seen", "gauge": {"dataPoints": [point]}}
    service = {"key": "service.name", "value": {"stringValue": "digits"}}
    return {
        "resourceMetrics": [
            {
                "resource": {"attributes": [service]},
                "scopeMetrics": [{"metrics": [metric]}],
            }
        ]
    }


def _up(project: Project) -> dict[str, str]:
    return {
        each["metric"]["job"]: each["value"][1] for each in _asked(project, "min by (job) (up)")
    }


def _asked(project: Project, query: str) -> list[dict[str, Any]]:
    """Return what Prometheus answers; nothing while it starts."""
    words = urllib.parse.urlencode({"query": query})
    place = f"http://127.0.0.1:{project.prometheus_port}/api/v1/query?{words}"
    try:
        with urllib.request.urlopen(place, timeout=10) as answer:
            found: list[dict[str, Any]] = json.load(answer)["data"]["result"]
    except OSError:
        return []
    return found
