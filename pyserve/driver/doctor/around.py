"""What a mesh needs around it: who takes its spans; and what the environment says."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from urllib.parse import urlsplit

from pyserve.config import MeshSettings, older_names, unknown_names
from pyserve.driver.doctor.findings import Finding, notice, ok, wrong

_CONNECT_TIMEOUT_S = 2.0
_OTLP_PORT = 4317


def check_environment() -> Iterator[Finding]:
    """Look for variables that nothing reads, or that have older names."""
    unknown = unknown_names()
    for line in unknown:
        yield notice("environment", line, "correct the name, or take the variable away")
    for line in older_names():
        yield notice("environment", line, "write the new name")
    if not unknown:
        yield ok("environment", "every PYSERVE_* variable is a setting")


def check_otlp(settings: MeshSettings) -> Iterator[Finding]:
    """Look whether somebody takes the spans, if there are any."""
    tracing, endpoint = settings.tracing, settings.tracing.endpoint
    if not tracing.enabled or tracing.exporter is not None or not endpoint:
        return
    try:
        found = urlsplit(endpoint if "//" in endpoint else f"//{endpoint}")
        host, port = found.hostname or "", found.port or _OTLP_PORT
    except ValueError as error:
        remedy = "write it as http://HOST:4317"
        yield wrong("otlp", f"the endpoint of OTLP, {endpoint!r}, is none: {error}", remedy)
        return
    try:
        socket.create_connection((host, port), _CONNECT_TIMEOUT_S).close()
    except OSError as error:
        yield wrong(
            "otlp",
            f"nobody takes spans at {endpoint}: {error}; they are lost",
            "start the collector, correct OTEL_EXPORTER_OTLP_ENDPOINT, or take it away",
        )
    else:
        yield ok("otlp", f"{endpoint} takes connections")
