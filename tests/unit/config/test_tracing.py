"""What decides whether a process traces, and how many requests."""

from __future__ import annotations

from typing import Any

import pytest

from pyserve.config.telemetry import TracingConfig, TracingSettings, read_tracing_settings
from pyserve.errors import OptionError

ENDPOINT = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:4317"}


def test_without_anybody_who_takes_spans_there_are_none():
    assert not read_tracing_settings({}).enabled


@pytest.mark.parametrize(
    "name", ["OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"]
)
def test_an_endpoint_is_enough_and_means_every_request_as_in_opentelemetry(name: str):
    found = read_tracing_settings({name: "http://127.0.0.1:4317"})

    assert TracingSettings(enabled=True, exporter=None, sampling_ratio=1.0) == found


@pytest.mark.parametrize("value", ["true", "True", " TRUE "])
def test_a_disabled_sdk_makes_none(value: str):
    assert not read_tracing_settings({**ENDPOINT, "OTEL_SDK_DISABLED": value}).enabled


@pytest.mark.parametrize(
    ("sampler", "argument", "ratio"),
    [
        ("always_on", "", 1.0),
        ("parentbased_always_off", "", 0.0),
        ("traceidratio", "0.25", 0.25),
        ("parentbased_traceidratio", "0.25", 0.25),
        # As its specification says: what is wrong counts as not set.
        ("traceidratio", "a quarter", 1.0),
        ("traceidratio", "7", 1.0),
        ("jaeger_remote", "0.25", 1.0),
    ],
)
def test_samplers_of_opentelemetry_are_read(sampler: str, argument: str, ratio: float):
    variables = {"OTEL_TRACES_SAMPLER": sampler, "OTEL_TRACES_SAMPLER_ARG": argument}

    assert ratio == read_tracing_settings({**ENDPOINT, **variables}).sampling_ratio


@pytest.mark.parametrize(
    ("config", "environment", "expected"),
    [
        (
            TracingConfig(enabled=True, exporter_import_path="shop.spans:export"),
            {},
            TracingSettings(enabled=True, exporter="shop.spans:export", sampling_ratio=0.01),
        ),
        (
            TracingConfig(enabled=True, sampling_ratio=0.5),
            ENDPOINT,
            TracingSettings(enabled=True, sampling_ratio=0.5),
        ),
        # A setting that is written overrides all others.
        (TracingConfig(sampling_ratio=1), ENDPOINT, TracingSettings(sampling_ratio=1.0)),
    ],
)
def test_a_config_reaches_the_processes_of_its_mesh(
    config: TracingConfig, environment: dict[str, str], expected: TracingSettings
):
    assert expected == read_tracing_settings({**environment, **config.environment()})


@pytest.mark.parametrize(
    "variables",
    [
        TracingConfig(enabled=True).environment(),
        {"PYSERVE_TRACING_ENABLED": "yes", **ENDPOINT},
        {"PYSERVE_TRACING_SAMPLING_RATIO": "2", **ENDPOINT},
        {"PYSERVE_TRACING_EXPORTER": "7 ways"},
    ],
)
def test_what_cannot_be_meant_is_refused(variables: dict[str, str]):
    with pytest.raises(OptionError, match=r"PYSERVE_TRACING|OTEL_EXPORTER_OTLP_ENDPOINT"):
        read_tracing_settings(variables)


@pytest.mark.parametrize("given", [{"sampling_ratio": 1.5}, {"enabled": 1}, {"exporter": "a:b"}])
def test_a_config_is_checked(given: dict[str, Any]):
    with pytest.raises(OptionError, match="tracing_config"):
        TracingConfig.of("tracing_config", given)
