"""The models that replicas have loaded, and the cost of keeping them loaded. Pure."""

from __future__ import annotations

from typing import Any

from pyserve.admin.api.snapshot import Cache, MeshSnapshot
from pyserve.admin.rounding import seconds, share

# More do not fit on a screen.
_MODELS_SHOWN_MAX = 500


def models(look: MeshSnapshot) -> dict[str, Any]:
    """Return the models of all replicas as JSON, those used most first.

    Counts are those of this node's replicas since they started; of a replica elsewhere only the
    ids are known.
    """
    found: list[dict[str, Any]] = [
        {
            "target": target,
            "replica": replica,
            "function": function,
            "model": name,
            "load_s": seconds(each.get("load_s")),
            "held": bool(each.get("held")),
            **{word: int(each.get(word, 0)) for word in _OF_MODELS},
        }
        for (target, replica, function), cache in look.caches.items()
        for name, each in cache.models.items()
    ]
    found.sort(key=lambda each: each["hits"], reverse=True)
    told = {(each["replica"], each["model"]) for each in found}
    return {
        "models": found[:_MODELS_SHOWN_MAX],
        "models_left_out": len(found[_MODELS_SHOWN_MAX:]),
        "caches": [_cache(*key, cache) for key, cache in sorted(look.caches.items())],
        "others": [
            {"replica": replica, "model": name}
            for replica, names in sorted(look.models.items())
            for name in names
            if (replica, name) not in told
        ][:_MODELS_SHOWN_MAX],
    }


_OF_MODELS = ("bytes", "hits", "misses", "loads", "evictions")


def _cache(target: str, replica: str, function: str, cache: Cache) -> dict[str, Any]:
    counts = cache.counts
    hits, misses = counts.get("hit", 0), counts.get("miss", 0)
    return {
        "target": target,
        "replica": replica,
        "function": function,
        "models": counts.get("models", 0),
        "models_max": counts.get("max"),
        "bytes": counts.get("bytes", 0),
        "loading": counts.get("loading", 0),
        "waiting": counts.get("waiting", 0),
        "hits": hits,
        "misses": misses,
        "hit_share": share(hits, hits + misses),
        "loads": counts.get("loaded", 0),
        "loads_failed": counts.get("failed", 0),
        "evictions": counts.get("evictions", 0),
        "reloads": counts.get("reloads", 0),
        "load_mean_s": seconds(cache.load_times.mean_s),
        "load_p99_s": seconds(cache.load_times.quantile(0.99)),
    }
