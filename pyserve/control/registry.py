"""Versions of the mesh's view and the updates between them. Pure; ``now`` is an argument.

Watchers that ask for the same deployments form a group: an update is computed and serialized
once for the group. A watcher has a bounded queue; one that falls behind gets a snapshot.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from pyserve.config.control import WATCH_COALESCE_S, WATCH_QUEUE_LENGTH_MAX
from pyserve.types import DeploymentKey
from pyserve.wire.v1 import mesh_pb2

Views = Mapping[DeploymentKey, mesh_pb2.DeploymentView]
# The deployments that a watcher asked for; None: all.
Interest = frozenset[DeploymentKey] | None


@dataclass(eq=False, slots=True)
class Watcher:
    """One router's place in the registry.

    Attributes:
        interest: what it asked for.
        on_update: called when ``updates`` or ``lagging`` changed; must not block.
        updates: serialized ``WatchUpdate`` messages to send, oldest first.
        lagging: the queue was full; a snapshot has to be sent instead of what was in it.
    """

    interest: Interest
    on_update: Callable[[], None]
    updates: deque[bytes] = field(default_factory=deque)
    lagging: bool = False


@dataclass(slots=True)
class _Group:
    version: int
    watchers: set[Watcher] = field(default_factory=set)


class Registry:
    """The published views and everybody who watches them.

    Attributes:
        version: of what is published.
        held: nothing is published, and who comes gets no snapshot, until ``release``: routers
            keep what they have seen last.
    """

    def __init__(self) -> None:
        # Versions begin at 1, because a base version of 0 marks a snapshot.
        self.version = 1
        self.held = False
        self._published: dict[DeploymentKey, mesh_pb2.DeploymentView] = {}
        self._offered: dict[DeploymentKey, mesh_pb2.DeploymentView] = {}
        self._dirty_since: float | None = None
        self._groups: dict[Interest, _Group] = {}

    def begin(self, version: int, *, held: bool) -> None:
        """Count from ``version`` on; before anybody watches."""
        self.version, self.held = version, held

    def release(self) -> None:
        """Publish what is offered, and give everybody who came meanwhile a snapshot."""
        self.held = False
        self._publish()
        for group in self._groups.values():
            for watcher in group.watchers:
                watcher.on_update()

    def offer(self, views: Views, now: float) -> None:
        """Take the newest views; they are published 20 ms after the first change among them."""
        self._offered = dict(views)
        if self._offered == self._published:
            self._dirty_since = None
        elif self._dirty_since is None:
            self._dirty_since = now

    def next_wakeup(self) -> float | None:
        """Return when ``publish`` has something to do, ``None`` if nothing changed."""
        if self._dirty_since is None or self.held:
            return None
        return self._dirty_since + WATCH_COALESCE_S

    @property
    def pending_version(self) -> int:
        """The version that will hold everything offered so far."""
        return self.version if self._dirty_since is None else self.version + 1

    def publish(self, now: float) -> bool:
        """Queue an update for every watcher that it concerns, if its time has come."""
        due = self.next_wakeup()
        if due is None or due > now:
            return False
        self._publish()
        return True

    def publish_new(self) -> None:
        """Publish at once if a deployment has been offered that no watcher knows yet."""
        if not self.held and not self._offered.keys() <= self._published.keys():
            self._publish()

    def _publish(self) -> None:
        changed = {key for key, view in self._offered.items() if self._published.get(key) != view}
        removed = self._published.keys() - self._offered.keys()
        self.version += 1
        self._published = self._offered
        self._dirty_since = None
        for interest, group in self._groups.items():
            mine_changed = changed if interest is None else changed & interest
            mine_removed = removed if interest is None else removed & interest
            if mine_changed or mine_removed:
                self._queue(group, mine_changed, mine_removed)

    def watch(self, interest: Interest, on_update: Callable[[], None]) -> Watcher:
        """Add a watcher; its first update, a snapshot, waits in its queue unless this is held."""
        group = self._groups.setdefault(interest, _Group(self.version))
        watcher = Watcher(interest, on_update)
        group.watchers.add(watcher)
        if self.held:
            watcher.lagging = True
        else:
            watcher.updates.append(self._snapshot(interest, group))
        return watcher

    def unwatch(self, watcher: Watcher) -> None:
        """Forget the watcher. Idempotent."""
        group = self._groups.get(watcher.interest)
        if group is not None:
            group.watchers.discard(watcher)
            if not group.watchers:
                del self._groups[watcher.interest]

    def take(self, watcher: Watcher) -> bytes | None:
        """Return the next message for the watcher, ``None`` when it is up to date."""
        if watcher.lagging and not self.held:
            watcher.lagging = False
            return self._snapshot(watcher.interest, self._groups[watcher.interest])
        return watcher.updates.popleft() if watcher.updates else None

    def _queue(
        self, group: _Group, changed: set[DeploymentKey], removed: set[DeploymentKey]
    ) -> None:
        update = mesh_pb2.WatchUpdate(
            base_version=group.version,
            version=self.version,
            changed=[self._published[key] for key in sorted(changed, key=str)],
            removed=[_wire_key(key) for key in sorted(removed, key=str)],
        ).SerializeToString()
        group.version = self.version
        for watcher in group.watchers:
            if len(watcher.updates) >= WATCH_QUEUE_LENGTH_MAX:
                watcher.updates.clear()
                watcher.lagging = True
            if not watcher.lagging:
                watcher.updates.append(update)
            watcher.on_update()

    def _snapshot(self, interest: Interest, group: _Group) -> bytes:
        keys = self._published if interest is None else self._published.keys() & interest
        return mesh_pb2.WatchUpdate(
            base_version=0,
            version=group.version,
            changed=[self._published[key] for key in sorted(keys, key=str)],
        ).SerializeToString()


def _wire_key(key: DeploymentKey) -> mesh_pb2.DeploymentKey:
    return mesh_pb2.DeploymentKey(application=key.application, name=key.deployment)
