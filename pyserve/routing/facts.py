"""The facts that replicas report about themselves, from views to policies of users."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable
from types import MappingProxyType

from pyserve.api.policy import NO_FACTS, Facts
from pyserve.wire.v1 import mesh_pb2

_LOGGER = logging.getLogger(__name__)


class ReplicaFacts:
    """Routing stats and metadata by the id of the replica.

    One thread takes them from views; the threads of the policies read meanwhile.
    """

    def __init__(self) -> None:
        self._known: dict[str, tuple[tuple[str, str], tuple[Facts, Facts]]] = {}
        self._used: set[str] = set()

    def take(self, replicas: Iterable[mesh_pb2.ReplicaView]) -> None:
        """Remember what these replicas say."""
        for replica in replicas:
            name = replica.replica_id
            texts = replica.routing_stats_json, replica.replica_metadata_json
            if not any(texts):
                continue
            self._used.add(name)
            # Most views change for another reason.
            if name not in self._known or texts != self._known[name][0]:
                self._known[name] = texts, (_facts(name, texts[0]), _facts(name, texts[1]))

    def forget_unused(self) -> None:
        """Let go of replicas that were not taken since the last time."""
        for name in self._known.keys() - self._used:
            del self._known[name]
        self._used = set()

    def of(self, replica_id: str) -> tuple[Facts, Facts]:
        """Return the routing stats and the metadata of a replica, empty where there are none."""
        found = self._known.get(replica_id)
        return (NO_FACTS, NO_FACTS) if found is None else found[1]


def _facts(replica_id: str, text: str) -> Facts:
    if not text:
        return NO_FACTS
    try:
        # A policy that changed them would change them for its next calls too.
        return MappingProxyType(json.loads(text))
    except (ValueError, TypeError, RecursionError) as error:
        _LOGGER.warning(
            "what replica %s says of itself is not a JSON object, and not used: %s",
            replica_id,
            error,
        )
        return NO_FACTS
