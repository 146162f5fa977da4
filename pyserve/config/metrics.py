"""What the environment says of the port where a node shows what its processes have counted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pyserve.config.validation import refuse

ALIASES = {"PYSERVE_METRICS_PORT": "RAY_SERVE_HAPROXY_METRICS_PORT"}
# That of Ray Serve's balancer.
DEFAULT_METRICS_PORT = 9101
_PORT_MAX = 65535


@dataclass(frozen=True, kw_only=True)
class MetricsSettings:
    """How a node shows its metrics.

    Attributes:
        port: of the admin server; 0: any free one, None: there is none.
    """

    port: int | None = DEFAULT_METRICS_PORT


def read_metrics_settings(variables: Mapping[str, str]) -> MetricsSettings:
    """Read the variables of metrics.

    Raises:
        OptionError: one has a value that cannot be used.
    """
    name = "PYSERVE_METRICS_PORT"
    value = variables.get(name, "")
    if value == "off":
        return MetricsSettings(port=None)
    port = int(value) if value.isascii() and value.isdigit() else -1
    if value and not 0 <= port <= _PORT_MAX:
        raise refuse(name, value, f"a port from 0 (any free one) to {_PORT_MAX}, or off")
    return MetricsSettings(port=port if value else DEFAULT_METRICS_PORT)
