"""`/metrics` has the buckets that were asked for, with all calls in them."""

import logging

import httpx
import pytest

from pyserve.admin import make_admin
from pyserve.admin.histograms import bounds_of, coarser, others_taken
from pyserve.config import read_settings
from pyserve.config.telemetry import MetricsSettings
from pyserve.observe.metrics import Family, ProcessMetrics, Scrape, Tally

TOKEN = b"\x01" * 32
NAME = "pyserve_router_call_seconds"


def times(*values_s: float, exemplars=None) -> Family:
    tally = Tally()
    for each in values_s:
        tally.add(each)
    family = Family(NAME, "histogram", "")
    family.add_histogram(tally, {"deployment": "A"}, exemplars)
    return family


def bounds_ms(*bounds: float):
    return bounds_of(MetricsSettings(request_bounds_ms=bounds))


def buckets(family: Family) -> dict[str, float]:
    return {s.labels["le"]: s.value for s in family.samples if s.suffix == "_bucket"}


def test_fewer_buckets_hold_the_same_calls():
    (found,) = coarser([times(0.0001, 0.003, 0.07, 90)], bounds_ms(1, 10, 100))
    assert {"0.001": 1, "0.01": 2, "0.1": 3, "+Inf": 4} == buckets(found)
    assert [("_count", 4), ("_sum", 90.0731)] == [
        (each.suffix, round(each.value, 9)) for each in found.samples if each.suffix != "_bucket"
    ]


def test_families_of_others_stay_as_they_are():
    user = Family("pages", "histogram", "")
    user.add_histogram(Tally([0.5, 3]), {})
    assert [user, times(1)] == coarser([user, times(1)], {})
    assert [user] == coarser([user], bounds_ms(1))


def test_the_bound_next_to_one_that_is_not_counted_by_is_taken_and_told():
    (found,) = coarser([times(0.0001)], bounds_ms(2, 1000, 120_000, 600_000))
    assert ["0.0025", "1.0", "60.0", "+Inf"] == list(buckets(found))
    assert "2.5 for 2, 60000 for 120000" == others_taken([2, 1000, 120_000])
    assert "" == others_taken([0.05, 0.25, 1, 20_000, 60_000])


def test_an_exemplar_stays_in_a_bucket_that_holds_it():
    # The sixth bucket is up to 2.5 ms; the eighth up to 10.
    (found,) = coarser([times(0.002, exemplars={5: ("cafe", 0.002, 1.0)})], bounds_ms(1, 10))
    assert {"0.01": ("cafe", 0.002, 1.0)} == {
        each.labels["le"]: each.exemplar for each in found.samples if each.exemplar
    }


def test_times_of_models_have_bounds_of_their_own():
    found = bounds_of(MetricsSettings(model_bounds_ms=(100, 1000)))
    assert {"pyserve_model_load_seconds", "pyserve_model_unload_seconds"} == set(found)
    assert {0.1, 1.0} == found["pyserve_model_load_seconds"]


@pytest.mark.parity("G-79")
@pytest.mark.parametrize("prefix", ["PYSERVE", "RAY_SERVE"])
async def test_a_node_shows_the_buckets_that_its_environment_asks_for(prefix, caplog):
    settings = read_settings(
        {
            "PYSERVE_HOME": "/h",
            "PYSERVE_METRICS_PORT": "0",
            f"{prefix}_REQUEST_LATENCY_BUCKETS_MS": "0.1, 2,1000",
            f"{prefix}_MODEL_LOAD_LATENCY_BUCKETS_MS": "1000",
        }
    )
    metrics = ProcessMetrics("ingress")

    def add(scrape: Scrape) -> None:
        scrape.add_histogram(NAME, Tally())
        scrape.add_histogram("pyserve_model_load_seconds", Tally())

    metrics.add(add)
    with caplog.at_level(logging.WARNING):
        server = make_admin(settings, own=metrics, token=TOKEN)
    assert server is not None
    server.start()
    try:
        async with httpx.AsyncClient(timeout=20, trust_env=False) as client:
            page = (await client.get(f"http://{server.address}/metrics")).text
    finally:
        await server.close()
    lines = [each for each in page.splitlines() if "_bucket{" in each]
    assert [
        *(f'{NAME}_bucket{{le="{le}"}} 0.0' for le in ("0.0001", "0.0025", "1.0", "+Inf")),
        *(f'pyserve_model_load_seconds_bucket{{le="{le}"}} 0.0' for le in ("1.0", "+Inf")),
    ] == sorted(lines, key=lambda line: "model" in line)
    (said,) = caplog.messages
    assert "PYSERVE_REQUEST_LATENCY_BUCKETS_MS" in said
    assert "2.5 for 2" in said
