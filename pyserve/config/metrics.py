"""The environment's settings of a node's admin port, and above all of its metrics."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass

from pyserve.config.validation import refuse
from pyserve.config.variables import switch

REQUEST_BUCKETS = "PYSERVE_REQUEST_LATENCY_BUCKETS_MS"
MODEL_BUCKETS = "PYSERVE_MODEL_LOAD_LATENCY_BUCKETS_MS"
ALIASES = {
    "PYSERVE_METRICS_PORT": "RAY_SERVE_HAPROXY_METRICS_PORT",
    REQUEST_BUCKETS: "RAY_SERVE_REQUEST_LATENCY_BUCKETS_MS",
    MODEL_BUCKETS: "RAY_SERVE_MODEL_LOAD_LATENCY_BUCKETS_MS",
}
# That of Ray Serve's balancer.
DEFAULT_METRICS_PORT = 9101
_PORT_MAX = 65535
_TRIES = "PYSERVE_TRY_METHODS"


@dataclass(frozen=True, kw_only=True)
class MetricsSettings:
    """How a node shows its metrics.

    Attributes:
        port: of the admin server; 0: any free one, None: there is none.
        request_bounds_ms: upper bounds of the buckets for times of requests, growing; (): all.
        model_bounds_ms: the same for times of models.
        tries: whether methods may be called from its page; None: in a mesh that ends with who
            has started it, as that of ``pyserve run``.
    """

    port: int | None = DEFAULT_METRICS_PORT
    request_bounds_ms: tuple[float, ...] = ()
    model_bounds_ms: tuple[float, ...] = ()
    tries: bool | None = None


def read_metrics_settings(variables: Mapping[str, str]) -> MetricsSettings:
    """Read the variables of metrics.

    Raises:
        OptionError: one has a value that cannot be used.
    """
    return MetricsSettings(
        port=_port(variables),
        request_bounds_ms=_bounds(variables, REQUEST_BUCKETS),
        model_bounds_ms=_bounds(variables, MODEL_BUCKETS),
        tries=switch(variables, _TRIES) if variables.get(_TRIES) else None,
    )


def _port(variables: Mapping[str, str]) -> int | None:
    name = "PYSERVE_METRICS_PORT"
    value = variables.get(name, "")
    if value == "off":
        return None
    port = int(value) if value.isascii() and value.isdigit() else -1
    if value and not 0 <= port <= _PORT_MAX:
        raise refuse(name, value, f"a port from 0 (any free one) to {_PORT_MAX}, or off")
    return port if value else DEFAULT_METRICS_PORT


def _bounds(variables: Mapping[str, str], name: str) -> tuple[float, ...]:
    value = variables.get(name, "").strip()
    if not value:
        return ()
    try:
        bounds = tuple(map(float, value.split(",")))
    except ValueError:
        bounds = (math.nan,)
    if not all(before < after for before, after in itertools.pairwise((0.0, *bounds, math.inf))):
        raise refuse(name, value, "milliseconds above 0, growing, with commas between them")
    return bounds
