"""What is measured and traced, and where it is shown: what users write, and the environment.

Traces: what is traced and where spans go. Metrics: the admin port of a node, and what it shows.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from pyserve.config import variables as read
from pyserve.config.parts import Part
from pyserve.config.validation import check_flag, check_import_path, check_number, refuse
from pyserve.config.variables import switch
from pyserve.errors import OptionError

_ENABLED = "PYSERVE_TRACING_ENABLED"
_EXPORTER = "PYSERVE_TRACING_EXPORTER"
_RATIO = "PYSERVE_TRACING_SAMPLING_RATIO"
# Of OpenTelemetry; what else its SDK and its exporter read, they read themselves.
_ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
_SAMPLER = "OTEL_TRACES_SAMPLER"
_SAMPLER_RATIO = "OTEL_TRACES_SAMPLER_ARG"
_DISABLED = "OTEL_SDK_DISABLED"
# As Ray Serve has it.
_CONFIG_RATIO = 0.01


@dataclass(frozen=True, kw_only=True)
class TracingConfig(Part):
    """Whether requests are traced, which ones, and who gets the spans.

    Attributes:
        enabled: ``False`` keeps spans off even where the environment names an exporter's endpoint.
        exporter_import_path: ``module:function`` that takes nothing and returns exporters or
            span processors of OpenTelemetry, one or a list; empty: OTLP over gRPC, to
            ``OTEL_EXPORTER_OTLP_ENDPOINT``.
        sampling_ratio: Share of the requests that come without a decision, from 0 to 1.
    """

    enabled: bool = False
    exporter_import_path: str = ""
    sampling_ratio: float = _CONFIG_RATIO

    def __post_init__(self) -> None:
        check_number("tracing_config.sampling_ratio", self.sampling_ratio, minimum=0, maximum=1.0)
        check_flag("tracing_config.enabled", self.enabled)
        path: object = self.exporter_import_path
        if path != "":
            if not isinstance(path, str):
                raise refuse("tracing_config.exporter_import_path", path, "module:function")
            check_import_path("tracing_config.exporter_import_path", path)

    def environment(self) -> dict[str, str]:
        """Return the variables that tell this to the processes of a mesh."""
        return {
            _ENABLED: "1" if self.enabled else "0",
            _EXPORTER: self.exporter_import_path,
            _RATIO: repr(float(self.sampling_ratio)),
        }


@dataclass(frozen=True, kw_only=True)
class TracingSettings:
    """What one process does about traces.

    Attributes:
        enabled: There are spans, and somebody to take them.
        exporter: Import path of what makes the exporters; None: OTLP over gRPC.
        sampling_ratio: Of requests that come without a decision.
        endpoint: Where OTLP goes; "": nothing says it.
    """

    enabled: bool = False
    exporter: str | None = None
    endpoint: str = field(default="", compare=False)
    sampling_ratio: float = 1.0


def read_tracing_settings(variables: Mapping[str, str]) -> TracingSettings:
    """Read what a mesh was asked for, and OpenTelemetry's own variables.

    Raises:
        OptionError: Tracing is asked for, and there is nobody to take the spans; or a variable
            of ours has a value that cannot be used.
    """
    exporter = variables.get(_EXPORTER) or None
    if exporter is not None:
        check_import_path(_EXPORTER, exporter)
    endpoint = next((variables[name] for name in _ENDPOINTS if variables.get(name)), "")
    has_exporter = exporter is not None or bool(endpoint)
    is_asked = read.switch(variables, _ENABLED, default=has_exporter)
    if is_asked and not has_exporter:
        raise OptionError(
            f"tracing is enabled and has nobody to take the spans; set {_ENDPOINTS[1]}, such as "
            f"http://127.0.0.1:4317, or an exporter_import_path ({_EXPORTER})"
        )
    # This variable is for all programs, so it may be set together with our own.
    is_disabled = variables.get(_DISABLED, "").strip().lower() == "true"
    return TracingSettings(
        enabled=is_asked and not is_disabled,
        exporter=exporter,
        endpoint=endpoint,
        sampling_ratio=_ratio(variables),
    )


def _ratio(variables: Mapping[str, str]) -> float:
    if variables.get(_RATIO):
        ratio = read.number(variables, _RATIO, 1.0, minimum=0.0)
        if ratio > 1:
            raise refuse(_RATIO, variables[_RATIO], "a number from 0 to 1")
        return ratio
    # The meaning and the defaults are OpenTelemetry's: what is unknown or wrong is left out.
    sampler = variables.get(_SAMPLER, "").strip().lower().removeprefix("parentbased_")
    if sampler == "always_off":
        return 0.0
    if sampler != "traceidratio":
        return 1.0
    try:
        ratio = float(variables.get(_SAMPLER_RATIO, ""))
    except ValueError:
        ratio = math.nan
    return ratio if 0 <= ratio <= 1 else 1.0


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
