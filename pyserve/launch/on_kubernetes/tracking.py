"""Turns the cluster's events of pods into launcher events of replicas. Pure.

Rules, each of which a test can break:

- A replica that was expected ends exactly once, whatever the order and number of events.
- It has ended when its container has ended, its pod is gone, or it was given up.
- A pod that is missing from a list has ended only if it was there before the list was asked for.
- What a replica waits for is reported when it changes, and cleared when the replica runs.
- Unexpected pods are kept until they are adopted.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from pyserve.control.replicas.launching import Ended, Event, Waiting
from pyserve.launch.on_kubernetes.reading import NodeView, PodView, gone, lost
from pyserve.types import ReplicaId

# Of the watch of Kubernetes (meta/v1, WatchEvent).
DELETED = "DELETED"


@dataclass(slots=True)
class _Tracked:
    """An expected replica, with the last seen state of its pod; ``None``: not seen yet."""

    view: PodView | None = None
    waits_for: str = ""


@dataclass(slots=True)
class Tracking:
    """The replicas of one launcher, and pods of its mesh that do not belong to any of them yet.

    Attributes:
        strays: pods of replicas that are not expected.
    """

    strays: dict[ReplicaId, PodView] = field(default_factory=dict)
    _expected: dict[ReplicaId, _Tracked] = field(default_factory=dict)

    def expect(self, replica_id: ReplicaId) -> list[Event]:
        """Follow a replica from now on; its pod may exist already."""
        self._expected.setdefault(replica_id, _Tracked())
        view = self.strays.pop(replica_id, None)
        return [] if view is None else self.handle(view)

    def forget(self, replica_id: ReplicaId) -> None:
        """The replica was never begun."""
        self._expected.pop(replica_id, None)

    def view(self, replica_id: ReplicaId) -> PodView | None:
        """Return the last seen state of an expected replica's pod."""
        tracked = self._expected.get(replica_id)
        return None if tracked is None else tracked.view

    def expects(self, replica_id: ReplicaId) -> bool:
        """Say whether a replica is followed that has not ended."""
        return replica_id in self._expected

    def present(self) -> frozenset[str]:
        """Return the pods that are known to exist, by their uids."""
        seen = (each.view for each in self._expected.values())
        return frozenset(view.uid for view in (*seen, *self.strays.values()) if view is not None)

    def handle(self, view: PodView, kind: str = "") -> list[Event]:
        """Take in the current state of a pod.

        Args:
            view: the pod.
            kind: of the watch event; ``DELETED``: this was the last of it.
        """
        if not view.replica_id:
            return []
        tracked = self._expected.get(view.replica_id)
        if tracked is None:
            if kind == DELETED:
                self.strays.pop(view.replica_id, None)
            else:
                self.strays[view.replica_id] = view
            return []
        if kind == DELETED and tracked.view is not None and tracked.view.uid != view.uid:
            return []  # Another one of the same name, long ago.
        tracked.view = view
        if view.end or kind == DELETED:
            del self._expected[view.replica_id]
            return [Ended(view.replica_id, gone(view))]
        return list(self._waiting(tracked, view))

    def replace(self, views: Iterable[PodView], before: Collection[str]) -> list[Event]:
        """Take in a complete list, from which a watch continues.

        Args:
            views: every pod of the mesh.
            before: what ``present`` returned before the list was asked for.
        """
        there = {view.uid: view for view in views}
        events = [event for view in there.values() for event in self.handle(view)]
        known = [each.view for each in self._expected.values()]
        for view in (*known, *self.strays.values()):
            if view is not None and view.uid in before and view.uid not in there:
                events += self.handle(view, DELETED)
        return events

    def give_up(self, replica_id: ReplicaId, nodes: Mapping[str, NodeView]) -> list[Event]:
        """Treat a replica as ended whose pod is deleted without confirmation of its end."""
        tracked = self._expected.pop(replica_id, None)
        if tracked is None or tracked.view is None:
            return []
        return [Ended(replica_id, lost(tracked.view, nodes.get(tracked.view.node)))]

    def _waiting(self, tracked: _Tracked, view: PodView) -> Iterable[Event]:
        if view.waits_for != tracked.waits_for:
            tracked.waits_for = view.waits_for
            yield Waiting(view.replica_id, view.waits_for)
