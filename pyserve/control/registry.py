"""Versions of the mesh's view and the updates between them. Pure; ``now`` is an argument.

A view consists of parts: the head of each deployment, and each of its replicas. An update has the
changed parts; for a watcher that does not take patches, the whole views with these parts.
Watchers that ask for the same form a group: an update is computed and serialized once for the
group. A watcher has a bounded queue; one that falls behind gets a snapshot.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from pyserve.config.control import WATCH_COALESCE_S, WATCH_QUEUE_LENGTH_MAX
from pyserve.types import DeploymentKey, ReplicaId
from pyserve.wire.v1 import mesh_pb2

# A part of a view: a replica of a deployment, or its head, which is a view without replicas.
Item = tuple[DeploymentKey, ReplicaId | None]
Changes = Mapping[Item, mesh_pb2.DeploymentView | mesh_pb2.ReplicaView | None]
"""Parts as they are now, ``None`` for those that are gone."""
# The deployments that a watcher asked for; None: all.
Interest = frozenset[DeploymentKey] | None


@dataclass(eq=False, slots=True)
class Watcher:
    """One router's place in the registry.

    Attributes:
        interest: what it asked for.
        on_update: called when ``updates`` or ``lagging`` changed; must not block.
        takes_patches: it need not get whole views.
        updates: serialized ``WatchUpdate`` messages to send, oldest first.
        lagging: the queue was full; a snapshot has to be sent instead of what was in it.
    """

    interest: Interest
    on_update: Callable[[], None]
    takes_patches: bool = False
    updates: deque[bytes] = field(default_factory=deque)
    lagging: bool = False


@dataclass(slots=True)
class _Group:
    version: int
    # Of what the group sees, until that changes: many come at once after a controller's start.
    snapshot: bytes | None = None
    watchers: set[Watcher] = field(default_factory=set)


@dataclass(slots=True)
class _View:
    """The published view of one deployment."""

    head: mesh_pb2.DeploymentView
    replicas: dict[ReplicaId, mesh_pb2.ReplicaView] = field(default_factory=dict)

    def whole(self) -> mesh_pb2.DeploymentView:
        view = mesh_pb2.DeploymentView()
        view.CopyFrom(self.head)
        view.replicas.extend(self.replicas.values())
        return view


@dataclass(slots=True)
class _News:
    """The changes of one version: heads, ends, and replicas where the head is unchanged."""

    changed: set[DeploymentKey] = field(default_factory=set)
    removed: set[DeploymentKey] = field(default_factory=set)
    patched: dict[DeploymentKey, mesh_pb2.ViewPatch] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class WatchCounts:
    """The numbers of watchers and of their updates.

    Attributes:
        watchers: how many there are.
        lagging: those of them that will get everything again.
        version: of what is published.
        updates: that were queued for a watcher.
    """

    watchers: int
    lagging: int
    version: int
    updates: int


class Registry:
    """The published views and everybody who watches them.

    Attributes:
        version: of what is published.
        held: nothing is published, and new watchers get no snapshot, until ``release``: routers
            keep their last views.
    """

    def __init__(self) -> None:
        # Versions begin at 1, because a base version of 0 marks a snapshot.
        self.version = 1
        self.held = False
        self._published: dict[DeploymentKey, _View] = {}
        # Differs from what is published.
        self._offered: dict[Item, mesh_pb2.DeploymentView | mesh_pb2.ReplicaView | None] = {}
        self._dirty_since: float | None = None
        self._groups: dict[tuple[Interest, bool], _Group] = {}
        self._updates = 0

    def counts(self) -> WatchCounts:
        """Return the numbers of watchers."""
        watchers = [each for group in self._groups.values() for each in group.watchers]
        lagging = sum(each.lagging for each in watchers)
        return WatchCounts(len(watchers), lagging, self.version, self._updates)

    def begin(self, version: int, *, held: bool) -> None:
        """Count from ``version`` on; before anybody watches."""
        self.version, self.held = version, held

    def release(self) -> None:
        """Publish what was offered, and send a snapshot to all who came meanwhile."""
        self.held = False
        self._publish()
        for group in self._groups.values():
            for watcher in group.watchers:
                watcher.on_update()

    def offer(self, changes: Changes, now: float) -> None:
        """Take the newest parts; they are published 20 ms after the first that is different.

        The replicas of a deployment that goes have to go by themselves.
        """
        for item, message in changes.items():
            if self._is_published(item, message):
                self._offered.pop(item, None)
            else:
                self._offered[item] = message
        if not self._offered:
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
        if not self.held and any(
            replica_id is None and key not in self._published for key, replica_id in self._offered
        ):
            self._publish()

    def watch(
        self, interest: Interest, on_update: Callable[[], None], *, takes_patches: bool = False
    ) -> Watcher:
        """Add a watcher; its first update, a snapshot, waits in its queue unless this is held."""
        group = self._groups.setdefault((interest, takes_patches), _Group(self.version))
        watcher = Watcher(interest, on_update, takes_patches)
        group.watchers.add(watcher)
        if self.held:
            watcher.lagging = True
        else:
            watcher.updates.append(self._snapshot(interest, group))
        return watcher

    def unwatch(self, watcher: Watcher) -> None:
        """Forget the watcher. Idempotent."""
        group = self._group_of(watcher)
        if group is not None:
            group.watchers.discard(watcher)
            if not group.watchers:
                del self._groups[watcher.interest, watcher.takes_patches]

    def take(self, watcher: Watcher) -> bytes | None:
        """Return the next message for the watcher, ``None`` when it is up to date."""
        group = self._group_of(watcher)
        if watcher.lagging and not self.held and group is not None:
            watcher.lagging = False
            return self._snapshot(watcher.interest, group)
        return watcher.updates.popleft() if watcher.updates else None

    def _group_of(self, watcher: Watcher) -> _Group | None:
        return self._groups.get((watcher.interest, watcher.takes_patches))

    def _is_published(
        self, item: Item, message: mesh_pb2.DeploymentView | mesh_pb2.ReplicaView | None
    ) -> bool:
        key, replica_id = item
        view = self._published.get(key)
        if view is None:
            return message is None
        return message == (view.head if replica_id is None else view.replicas.get(replica_id))

    def _publish(self) -> None:
        news = self._take_offered()
        self.version += 1
        self._dirty_since = None
        touched = {*news.changed, *news.removed, *news.patched}
        for (interest, takes_patches), group in self._groups.items():
            mine = touched if interest is None else touched & interest
            if mine:
                self._queue(group, self._update(group, mine, news, takes_patches=takes_patches))

    def _take_offered(self) -> _News:
        """Publish what is offered, and return what that is."""
        news = _News()
        offered, self._offered = self._offered, {}
        # Heads first: where they go their replicas do, and where they come they are all in it.
        for item in sorted(offered, key=lambda item: item[1] is not None):
            (key, replica_id), message = item, offered[item]
            if isinstance(message, mesh_pb2.DeploymentView):
                former = self._published.get(key)
                self._published[key] = _View(message, {} if former is None else former.replicas)
                news.changed.add(key)
            elif replica_id is None:
                self._published.pop(key, None)
                news.removed.add(key)
            elif (view := self._published.get(key)) is not None:
                if message is None:
                    view.replicas.pop(replica_id, None)
                else:
                    view.replicas[replica_id] = message
                if key not in news.changed:
                    _put(news.patched, key, replica_id, message)
        return news

    def _update(
        self, group: _Group, keys: Iterable[DeploymentKey], news: _News, *, takes_patches: bool
    ) -> bytes:
        ordered = sorted(keys, key=str)
        patched = [key for key in ordered if key in news.patched]
        whole = [
            key
            for key in ordered
            if key in news.changed or (key in news.patched and not takes_patches)
        ]
        return mesh_pb2.WatchUpdate(
            base_version=group.version,
            version=self.version,
            changed=[self._published[key].whole() for key in whole],
            removed=[_wire_key(key) for key in ordered if key in news.removed],
            patched=[news.patched[key] for key in patched] if takes_patches else (),
        ).SerializeToString()

    def _queue(self, group: _Group, update: bytes) -> None:
        group.version, group.snapshot = self.version, None
        for watcher in group.watchers:
            if len(watcher.updates) >= WATCH_QUEUE_LENGTH_MAX:
                watcher.updates.clear()
                watcher.lagging = True
            if not watcher.lagging:
                watcher.updates.append(update)
                self._updates += 1
            watcher.on_update()

    def _snapshot(self, interest: Interest, group: _Group) -> bytes:
        if group.snapshot is None:
            keys = self._published if interest is None else self._published.keys() & interest
            group.snapshot = mesh_pb2.WatchUpdate(
                base_version=0,
                version=group.version,
                changed=[self._published[key].whole() for key in sorted(keys, key=str)],
            ).SerializeToString()
        return group.snapshot


def _put(
    patches: dict[DeploymentKey, mesh_pb2.ViewPatch],
    key: DeploymentKey,
    replica_id: ReplicaId,
    message: mesh_pb2.DeploymentView | mesh_pb2.ReplicaView | None,
) -> None:
    patch = patches.get(key)
    if patch is None:
        patch = patches[key] = mesh_pb2.ViewPatch(key=_wire_key(key))
    if isinstance(message, mesh_pb2.ReplicaView):
        patch.changed.append(message)
    else:
        patch.removed.append(replica_id)


def _wire_key(key: DeploymentKey) -> mesh_pb2.DeploymentKey:
    return mesh_pb2.DeploymentKey(application=key.application, name=key.deployment)
