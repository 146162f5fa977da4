"""The contents of the page of models."""

from dataclasses import replace

from pyserve.admin.api.resources import models
from pyserve.admin.api.snapshot import Cache
from tests.unit.admin.builders import look, times


def model(hits: int, **more: float) -> dict[str, float]:
    return {
        "hits": hits,
        "misses": 1,
        "loads": 1,
        "evictions": 0,
        "bytes": 0,
        "load_s": 0.5,
        **more,
    }


CACHE = Cache(
    {"hit": 9, "miss": 3, "loaded": 3, "evictions": 1, "models": 2, "max": 2},
    times(0.5, 0.5, 0.5),
    {"rare": model(2), "often": model(7, bytes=2048, held=1)},
)
KEY = ("shop/Cart", "Cart#1", "Cart.get")


def test_each_model_has_its_numbers_those_used_most_first():
    found = models(replace(look(0.0), caches={KEY: CACHE}))["models"]
    assert ["often", "rare"] == [each["model"] for each in found]
    assert {
        "target": "shop/Cart",
        "replica": "Cart#1",
        "function": "Cart.get",
        "model": "often",
        "bytes": 2048,
        "hits": 7,
        "misses": 1,
        "loads": 1,
        "evictions": 0,
        "load_s": 0.5,
        "held": True,
    } == found[0]


def test_a_replica_has_its_sums():
    (found,) = models(replace(look(0.0), caches={KEY: CACHE}))["caches"]
    assert (9, 3, 0.75, 3, 1) == tuple(
        found[name] for name in ("hits", "misses", "hit_share", "loads", "evictions")
    )
    assert (2, 2, 0.5) == (found["models"], found["models_max"], found["load_mean_s"])


def test_of_replicas_elsewhere_only_the_names_are_known():
    of_ids = {"Cart#1": ("often",), "Cart#2": ("often",)}
    found = models(replace(look(0.0), caches={KEY: CACHE}, models=of_ids))
    assert [{"replica": "Cart#2", "model": "often"}] == found["others"]


def test_more_models_than_fit_are_counted():
    many = Cache(models={str(number): model(number) for number in range(501)})
    found = models(replace(look(0.0), caches={KEY: many}))
    assert (500, 1) == (len(found["models"]), found["models_left_out"])
    assert 500 == found["models"][0]["hits"]
