"""What sources add becomes samples with the names that Prometheus wants."""

import itertools
import re

import pytest

from pyserve.observe.metrics import Family, Scrape, Tally
from pyserve.observe.metrics.catalogue import METRICS
from pyserve.observe.metrics.families import TIME_BOUNDS_S


def test_a_tally_counts_each_value_in_the_first_bucket_that_holds_it():
    tally = Tally([1, 2])
    for each in (0.5, 1, 1.5, 7):
        tally.add(each)
    assert ([2, 1, 1], 10.0) == (tally.counts, tally.sum)


def test_buckets_are_cumulative_and_end_with_infinity():
    tally = Tally([0.5, 2])
    for each in (0.1, 1, 3):
        tally.add(each)
    family = Family("f", "histogram", "")

    family.add_histogram(tally, {"a": "b"}, {1: ("cafe", 1.0, 5.0)})

    assert [
        ("_bucket", {"a": "b", "le": "0.5"}, 1, None),
        ("_bucket", {"a": "b", "le": "2.0"}, 2, ("cafe", 1.0, 5.0)),
        ("_bucket", {"a": "b", "le": "+Inf"}, 3, None),
        ("_count", {"a": "b"}, 3, None),
        ("_sum", {"a": "b"}, 4.1, None),
    ] == [(s.suffix, s.labels, s.value, s.exemplar) for s in family.samples]


def test_families_travel_as_they_are():
    family = Family("f", "histogram", "text")
    family.add_histogram(Tally([1]), {}, {0: ("cafe", 1.0, 5.0)})
    assert family == Family.from_plain(family.to_plain())


@pytest.mark.parametrize("plain", [1, [], ["name", "kind", "text"], ["n", "k", "t", [1]]])
def test_what_is_no_family_is_refused(plain):
    with pytest.raises(ValueError, match=r"."):
        Family.from_plain(plain)


def test_samples_have_the_labels_of_their_process_and_their_own():
    scrape = Scrape({"replica": "A#1"})
    scrape.add("pyserve_ingress_calls_total", 1, by="x")
    scrape.without_labels().add("pyserve_ingress_calls_total", 2)

    (family,) = scrape.families()

    assert ("pyserve_ingress_calls", "counter") == (family.name, family.kind)
    assert [{"replica": "A#1", "by": "x"}, {}] == [each.labels for each in family.samples]


@pytest.mark.parity("G-79")
def test_times_are_told_apart_from_50_microseconds_on():
    """Ray Serve's first bucket is a millisecond, in which most of our calls would be."""
    assert 0.00005 == TIME_BOUNDS_S[0]
    assert sorted(set(TIME_BOUNDS_S)) == list(TIME_BOUNDS_S)
    below_20_s = itertools.pairwise(TIME_BOUNDS_S[:-2])
    assert all(1.9 < after / before < 2.6 for before, after in below_20_s)
    assert TIME_BOUNDS_S[-1] >= 60


def test_names_say_unit_and_kind():
    for name, metric in METRICS.items():
        assert re.fullmatch(r"pyserve(_[a-z0-9]+)+", name), name
        assert ("counter" == metric.kind) == name.endswith("_total"), name
        assert metric.text.endswith("."), name
        assert len(set(metric.labels)) == len(metric.labels), name
