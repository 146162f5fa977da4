"""Metrics of user code: Ray Serve's interface, one metric for each name, bounded."""

import pickle
import threading

import cloudpickle
import pytest

from pyserve.metrics import Counter, Gauge, Histogram
from pyserve.observe.metrics import Family, Scrape
from pyserve.observe.metrics.user import PROCESS_USER_METRICS, SERIES_MAX, UserMetrics


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PROCESS_USER_METRICS, "_metrics", {})


def scraped(**labels: str) -> dict[str, Family]:
    scrape = Scrape(labels)
    PROCESS_USER_METRICS.add_to(scrape)
    return {family.name: family for family in scrape.families()}


def samples(name: str) -> list[tuple[str, dict[str, str], float]]:
    return [(each.suffix, dict(each.labels), each.value) for each in scraped()[name].samples]


@pytest.mark.parity("G-80")
def test_counters_add_up_by_their_tags():
    counter = Counter("words", "Words.", tag_keys=("language", "kind"))
    counter.set_default_tags({"kind": "noun"})
    counter.inc(tags={"language": "en"})
    counter.inc(2.5, tags={"language": "en"})
    counter.inc(1, {"language": "de", "kind": "verb"})

    assert [
        ("_total", {"language": "en", "kind": "noun"}, 3.5),
        ("_total", {"language": "de", "kind": "verb"}, 1.0),
    ] == samples("words")
    assert ("counter", "Words.") == (scraped()["words"].kind, scraped()["words"].text)


@pytest.mark.parity("G-80")
def test_gauges_have_the_last_value():
    gauge = Gauge("level")
    gauge.set(5)
    gauge.set(-1.5)
    assert [("", {}, -1.5)] == samples("level")


@pytest.mark.parity("G-80")
def test_histograms_count_by_their_boundaries():
    histogram = Histogram("size", boundaries=[1, 10], tag_keys=("kind",))
    for value in (0.5, 1, 7, 70):
        histogram.observe(value, {"kind": "a"})
    assert [
        ("_bucket", {"kind": "a", "le": "1.0"}, 2),
        ("_bucket", {"kind": "a", "le": "10.0"}, 3),
        ("_bucket", {"kind": "a", "le": "+Inf"}, 4),
        ("_count", {"kind": "a"}, 4),
        ("_sum", {"kind": "a"}, 78.5),
    ] == samples("size")


@pytest.mark.parity("G-80")
def test_samples_have_the_labels_of_their_replica():
    Gauge("level").set(1)
    labels = {"application": "a", "deployment": "D", "replica": "D#1"}
    (sample,) = scraped(**labels)["level"].samples
    assert labels == sample.labels


def test_a_counter_with_total_in_its_name_has_it_once():
    Counter("words_total").inc()
    assert [("_total", {}, 1.0)] == samples("words")


def test_metrics_of_one_name_are_one():
    for _ in range(2):
        Counter("words", tag_keys=["kind"]).inc(tags={"kind": "x"})
    assert [("_total", {"kind": "x"}, 2.0)] == samples("words")


@pytest.mark.parametrize("module", [pickle, cloudpickle])
def test_a_metric_travels_with_the_class_that_has_it(module):
    counter = Counter("words", "Words.", ("kind",))
    counter.set_default_tags({"kind": "x"})
    histogram = Histogram("size", boundaries=[1, 2])

    for each in (counter, histogram):
        assert each.info == pickle.loads(module.dumps(each)).info
    pickle.loads(module.dumps(counter)).inc()
    assert [("_total", {"kind": "x"}, 1.0)] == samples("words")
    assert [1.0, 2.0] == histogram.info["boundaries"]


@pytest.mark.parametrize(
    ("make", "error", "text"),
    [
        (lambda: Counter(""), ValueError, "name"),
        (lambda: Counter("a-b"), ValueError, "letters, digits"),
        (lambda: Counter("pyserve_calls"), ValueError, "pyserve_"),
        (lambda: Counter("a", tag_keys="kind"), TypeError, "tuple of texts"),
        (lambda: Counter("a", tag_keys=(1,)), TypeError, "tuple of texts"),  # type: ignore[arg-type]
        (lambda: Counter("a", tag_keys=("le",)), ValueError, "le"),
        (lambda: Counter("a", tag_keys=("x", "x")), ValueError, "once"),
        (lambda: Counter("a", tag_keys=("replica",)), ValueError, "every metric"),
        (lambda: Histogram("a", boundaries=[]), ValueError, "grow"),
        (lambda: Histogram("a", boundaries=[2, 1]), ValueError, "grow"),
        (lambda: Counter("a").inc(0), ValueError, "above 0"),
        (lambda: Counter("a").inc(float("nan")), ValueError, "above 0"),
        (lambda: Counter("a").inc("1"), TypeError, "no number"),  # type: ignore[arg-type]
        (lambda: Counter("a").inc(1, {"x": "y"}), ValueError, "no tag key"),
        (lambda: Counter("a", tag_keys=("x",)).inc(), ValueError, "no value for the tags x"),
        (lambda: Counter("a", tag_keys=("x",)).inc(1, {"x": 1}), TypeError, "write a text"),  # type: ignore[dict-item]
        (lambda: Counter("a").set_default_tags({"x": "y"}), ValueError, "no tag key"),
    ],
)
def test_mistakes_are_told(make, error, text):
    with pytest.raises(error, match=text):
        make()


def test_another_metric_of_the_same_name_is_refused():
    Counter("words", tag_keys=("kind",))
    with pytest.raises(ValueError, match="another name"):
        Gauge("words", tag_keys=("kind",))
    with pytest.raises(ValueError, match="another name"):
        Counter("words")


def test_tags_without_end_take_no_memory_without_end(caplog):
    counter = Counter("calls", tag_keys=("user",))
    for number in range(SERIES_MAX + 3):
        counter.inc(tags={"user": str(number)})
    counter.inc(tags={"user": "0"})

    found = scraped()
    assert SERIES_MAX == len(found["calls"].samples)
    assert 2.0 == found["calls"].samples[0].value
    (dropped,) = found["pyserve_user_values_dropped"].samples
    assert ({"metric": "calls"}, 3) == (dropped.labels, dropped.value)
    assert 1 == len(caplog.records)


def test_threads_lose_no_count():
    counter = Counter("words")

    def count() -> None:
        for _ in range(2000):
            counter.inc()

    threads = [threading.Thread(target=count) for _ in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert [("_total", {}, 8000.0)] == samples("words")


def test_what_is_counted_with_prometheus_client_is_shown_too():
    import prometheus_client

    registry = prometheus_client.REGISTRY
    counter = prometheus_client.Counter("own_words", "Own.", ["kind"])
    histogram = prometheus_client.Histogram("own_size", "Own.", buckets=[1])
    try:
        counter.labels(kind="x").inc(2, exemplar={"trace_id": "cafe"})
        histogram.observe(0.5)
        found = scraped(replica="D#1")
    finally:
        registry.unregister(counter)
        registry.unregister(histogram)

    (sample,) = found["own_words"].samples
    assert ("_total", {"kind": "x", "replica": "D#1"}, 2.0) == (
        sample.suffix,
        sample.labels,
        sample.value,
    )
    assert sample.exemplar is not None
    assert ("cafe", 2.0) == sample.exemplar[:2]
    assert {"_bucket", "_count", "_sum"} == {each.suffix for each in found["own_size"].samples}
    assert not [name for name in found if name.startswith(("process_", "python_"))]


def test_nothing_is_loaded_for_those_who_count_nothing():
    scrape = Scrape({})
    UserMetrics().add_to(scrape)
    assert [] == [each.name for each in scrape.families() if not each.name.startswith("own_")]
