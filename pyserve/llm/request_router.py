"""Request routers for language models, under Ray Serve LLM's names.

In pyserve, routers do not read requests; a call names the blocks of its prompt that may be cached,
and every router sends it to the replica where it is expected to finish first. So an ``LLMConfig``
that selects one of these classes keeps its usual policy, and its replicas report their prompts.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyserve.api.policy import Candidate, RoutedRequest
from pyserve.config.routing import DEFAULT_POLICY, RequestRouterConfig
from pyserve.errors import OptionError
from pyserve.llm import prefixes
from pyserve.llm.openai.requests import generate_of_chat, generate_of_completion
from pyserve.llm.openai_api_models import ChatCompletionRequest, CompletionRequest
from pyserve.request_router import LocalityMixin, MultiplexMixin, RequestRouter

if TYPE_CHECKING:
    from pyserve.llm.config import LLMConfig

_OPTION = "request_router_config"
PREFIX_AFFINITY = "prefix_affinity"
"""In the metadata of a model's card: its replicas report the prompts that they have had."""
_EVICTION_THRESHOLD_CHARACTERS = 400_000
_EVICTION_TARGET_CHARACTERS = 360_000


def prefix_keys(request: Any, *_others: object) -> list[bytes]:
    """Return the keys of a request's prompt, for ``handle.options(cache_keys=prefix_keys)``.

    Args:
        request: A ``ChatCompletionRequest`` or a ``CompletionRequest``; others have none.
    """
    if isinstance(request, ChatCompletionRequest):
        return prefixes.keys_of(generate_of_chat(request))
    if isinstance(request, CompletionRequest):
        return prefixes.keys_of(generate_of_completion(request))
    return []


class PrefixCacheAffinityRouter(LocalityMixin, MultiplexMixin, RequestRouter):
    """Sends prompts that begin alike to the same replicas.

    In ``deployment_config`` of an ``LLMConfig`` it means the cache index of ``pyserve.cache``:
    replicas report their prompts, as text in blocks, and a call that names the blocks of its own
    goes to the replica where waiting and working on what is not there take least. That weighing
    stands for both thresholds.

    Deployments that are made without an ``LLMConfig`` report nothing; their calls go to the less
    loaded one of two replicas.

    Args (of ``initialize_state``):
        imbalanced_threshold, match_rate_threshold: Without a meaning here.
        do_eviction: Whether replicas report at most ``eviction_target_chars``; without it their
            reports are bounded all the same, by 32768 blocks.
        eviction_threshold_chars, eviction_interval_secs: Without a meaning: the oldest blocks go
            when new ones come.
        eviction_target_chars: How many characters of prompts a replica reports.
    """

    def initialize_state(
        self,
        imbalanced_threshold: float = math.inf,
        match_rate_threshold: float = 0.1,
        do_eviction: bool = False,
        eviction_threshold_chars: int = _EVICTION_THRESHOLD_CHARACTERS,
        eviction_target_chars: int | None = _EVICTION_TARGET_CHARACTERS,
        eviction_interval_secs: int = 10,
    ) -> None:
        """Take the arguments; see the class."""

    async def choose_replicas(
        self, candidate_replicas: list[Candidate], pending_request: RoutedRequest | None = None
    ) -> list[list[Candidate]]:
        """Return two replicas at random, the less loaded one first, and then the others."""
        wanted = "" if pending_request is None else pending_request.multiplexed_model_id
        ranks = self.rank_replicas_via_multiplex(candidate_replicas, wanted)
        nearest = next((rank for rank in ranks if rank), [])
        two = random.sample(nearest, min(2, len(nearest)))
        two.sort(key=lambda each: each.in_flight)
        return [[each] for each in two] + [candidate_replicas]


class KVAwareRouter(PrefixCacheAffinityRouter):
    """The same: no router tokenises prompts, so the text stands for the tokens."""


@dataclass(frozen=True, slots=True)
class Affinity:
    """That replicas report their prompts.

    Attributes:
        characters_max: How much of them; ``None``: as much as the index takes.
    """

    characters_max: int | None = None


_PATHS = {
    f"{__name__}:{each.__name__}": each for each in (PrefixCacheAffinityRouter, KVAwareRouter)
}


def affinity_of(config: LLMConfig) -> Affinity | None:
    """Return what a model's router asks of its replicas; ``None``: nothing.

    Raises:
        OptionError: An argument of the router is not allowed.
    """
    found = _router_config(config.deployment_config.get(_OPTION))
    if found is None or found.policy_path not in _PATHS:
        return None
    return _affinity(found.policy_kwargs)


def usual_policy(options: dict[str, Any]) -> dict[str, Any]:
    """Return the options of a deployment with the usual policy in the place of these routers."""
    found = _router_config(options.get(_OPTION))
    if found is None or found.policy_path not in _PATHS:
        return options
    usual = found.model_copy(update={"policy": DEFAULT_POLICY, "policy_kwargs": {}})
    return options | {_OPTION: usual}


def _router_config(value: object) -> RequestRouterConfig | None:
    return None if value is None else RequestRouterConfig.of(_OPTION, value)


def _affinity(given: Any) -> Affinity:
    known = PrefixCacheAffinityRouter.initialize_state.__annotations__
    for name in given:
        if name not in known or name == "return":
            raise OptionError(f"{_OPTION}.request_router_kwargs has no {name!r}")
    target = given.get("eviction_target_chars", _EVICTION_TARGET_CHARACTERS)
    if target is None:
        target = given.get("eviction_threshold_chars", _EVICTION_THRESHOLD_CHARACTERS)
    if isinstance(target, bool) or not isinstance(target, int) or target < 1:
        raise OptionError(
            f"{_OPTION}.request_router_kwargs.eviction_target_chars={target!r} is not allowed; "
            f"allowed: an integer from 1 on"
        )
    return Affinity(target if given.get("do_eviction") else None)
