"""The keys of ``LLMConfig.experimental_configs``: those with an effect, and those without."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from pyserve.config.parts import hint
from pyserve.config.validation import check_integer, check_mapping, check_number

BATCHING_INTERVAL = "stream_batching_interval_ms"
INGRESS_REPLICAS = "num_ingress_replicas"
DP_SIZE_PER_NODE = "dp_size_per_node"
_SPLIT = "prefill and decode are not split"
_NO_EFFECT = {
    BATCHING_INTERVAL: "events leave as they are made",
    "KV_EVENTS_PORT_BASE": "routers learn of the prefix cache by the mesh's own reports",
    "KV_TOKEN_PORT_BASE": "routers do not tokenise prompts",
    "KV_INDEXER_THREADS": "the index of prefixes is the router's own",
    "NIXL_SIDE_CHANNEL_PORT_BASE": _SPLIT,
    "MORI_HANDSHAKE_PORT_BASE": _SPLIT,
    "MORI_NOTIFY_PORT_BASE": _SPLIT,
    "_prewarm_prefill_decode": _SPLIT,
    "pd_tokenize_once": _SPLIT,
}
_KNOWN = (INGRESS_REPLICAS, DP_SIZE_PER_NODE, *_NO_EFFECT)
_RENAMED = {"num_router_replicas": INGRESS_REPLICAS}


def checked_experiments(value: object) -> dict[str, object]:
    """Return the keys and values, if all of them are known and fit.

    Raises:
        OptionError: A key is unknown, or its value is not allowed.
    """
    found = check_mapping("experimental_configs", value)
    for name, each in found.items():
        if name in _RENAMED:
            raise ValueError(f"experimental_configs.{name} is called {_RENAMED[name]!r} today")
        if name not in _KNOWN:
            raise ValueError(f"experimental_configs has no {name!r}; {hint(name, _KNOWN)}")
        if name == BATCHING_INTERVAL:
            check_number(f"experimental_configs.{name}", each, minimum=0, unit="milliseconds")
        elif name in (INGRESS_REPLICAS, DP_SIZE_PER_NODE):
            check_integer(f"experimental_configs.{name}", each, minimum=1)
    return found


def lines_on_experiments(given: Mapping[str, object]) -> Iterator[str]:
    """Yield a line on each key that changes nothing."""
    for name in given:
        if (reason := _NO_EFFECT.get(name)) is not None:
            yield f"experimental_configs.{name} has no effect: {reason}"
