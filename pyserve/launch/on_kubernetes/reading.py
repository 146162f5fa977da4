"""What happens to a replica, from the objects and events of its pod. Pure.

The fields, reasons and conditions are those of the Kubernetes API (core/v1, PodStatus): a pod's own
``reason`` (Evicted, NodeLost, ...), the condition ``DisruptionTarget`` of pods that are ended for
the sake of others, and the state of the container.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pyserve.config.launchers import REPLICA_CONTAINER
from pyserve.control.replicas.launching import Ended, Event, Waiting
from pyserve.launch.on_kubernetes.pods import REPLICA_ANNOTATION, ZONE_LABEL
from pyserve.launch.process import describe_end
from pyserve.types import ReplicaId

Object = Mapping[str, Any]
_ENDED_PHASES = ("Succeeded", "Failed")
# A shell's: 128 and the number of the signal.
_SIGNALS_FROM = 128
# Waiting reasons that are a part of every start.
_ORDINARY = ("ContainerCreating", "PodInitializing", "")
_OF_IMAGES = ("ErrImagePull", "ImagePullBackOff", "ImageInspectError", "RegistryUnavailable")
# These are fixed neither by waiting nor by another node.
_FINAL = ("InvalidImageName", "ErrImageNeverPull")
# The container's program could not be started.
_NOT_BEGUN = ("StartError", "ContainerCannotRun")
_DISRUPTED = {
    "PreemptionByScheduler": "was preempted by a pod of higher priority",
    "DeletionByTaintManager": "was evicted from its node",
    "EvictionByEvictionAPI": "was evicted on request",
    "DeletionByPodGC": "was lost with its node",
    "TerminationByKubelet": "was ended by its node",
}


@dataclass(frozen=True, slots=True)
class PodView:
    """The relevant state of a pod.

    Attributes:
        replica_id: the replica it belongs to; "": not one of ours.
        name, uid: of the object.
        node: where it has been placed; "": nowhere yet.
        is_running: its container runs.
        is_leaving: its end was requested.
        waits_for: as ``Waiting.why``.
        end: as ``Ended.summary``; "": it has not ended.
        last_output: what the cluster has kept of its output.
    """

    replica_id: ReplicaId
    name: str
    uid: str
    node: str = ""
    is_running: bool = False
    is_leaving: bool = False
    waits_for: str = ""
    end: str = ""
    last_output: str = ""


@dataclass(frozen=True, slots=True)
class NodeView:
    """The relevant state of a node.

    Attributes:
        zone: its failure domain; "": it has no label that says so.
        trouble: why it is not ready; "": it is.
    """

    name: str
    zone: str
    trouble: str


def read_pod(pod: Object) -> PodView:
    """Read a pod's object."""
    metadata, status = pod["metadata"], pod.get("status", {})
    state = _state(status)
    terminated, waiting = state.get("terminated"), state.get("waiting")
    end = ""
    if terminated is not None or status.get("phase") in _ENDED_PHASES:
        end = _end(status, terminated or {}, _memory_limit(pod))
    elif waiting is not None and waiting.get("reason") in _FINAL:
        end = f"cannot be started: {_told(waiting)}"
    return PodView(
        replica_id=ReplicaId(metadata.get("annotations", {}).get(REPLICA_ANNOTATION, "")),
        name=metadata["name"],
        uid=metadata["uid"],
        node=pod.get("spec", {}).get("nodeName", ""),
        is_running="running" in state,
        is_leaving="deletionTimestamp" in metadata,
        waits_for="" if end else _waits_for(pod, status, waiting or {}),
        end=end,
        last_output=(terminated or {}).get("message", ""),
    )


def read_node(node: Object) -> NodeView:
    """Read a node's object."""
    ready = _condition(node.get("status", {}), "Ready")
    return NodeView(
        name=node["metadata"]["name"],
        zone=node["metadata"].get("labels", {}).get(ZONE_LABEL, ""),
        trouble="" if ready.get("status") == "True" else _told(ready) or "NotReady",
    )


def gone(view: PodView) -> str:
    """Return how a replica has ended whose pod is gone, with the container's end if it is known."""
    where = f" on node {view.node}" if view.node else ""
    return view.end or f"ended: its pod {view.name}{where} was deleted"


def lost(view: PodView, node: NodeView | None) -> str:
    """Return how a replica has ended whose pod was given up, since its end is not confirmed."""
    if node is None or not node.trouble:
        return f"was given up: its pod {view.name} on node {view.node} does not end"
    return f"was lost with its node {view.node}: {node.trouble}"


def _end(status: Object, terminated: Object, memory_limit: str) -> str:
    reason = status.get("reason", "")
    disruption = _condition(status, "DisruptionTarget")
    own = _container_end(terminated, memory_limit) if terminated else ""
    if reason == "Evicted":
        return f"was evicted from its node: {status.get('message', '')}".rstrip(": ")
    if disruption.get("status") == "True":
        what = _DISRUPTED.get(disruption.get("reason", ""), "was ended for the sake of others")
        told = f"{what} ({_told(disruption)})"
        return f"{told}; it {own}" if own and terminated.get("exitCode") else told
    if reason and reason != "Error":
        return f"was ended by its node: {_told(status)}"
    return own or f"ended: {status.get('message') or status.get('phase', 'unknown')}"


def _container_end(terminated: Object, memory_limit: str) -> str:
    code, reason = int(terminated.get("exitCode", 0)), terminated.get("reason", "")
    if reason == "OOMKilled":
        most = f", of which it may have {memory_limit}" if memory_limit else ""
        return f"was killed by SIGKILL for want of memory (OOMKilled){most}"
    if reason in _NOT_BEGUN:
        return f"cannot be started: {_told(terminated)}"
    if reason == "ContainerStatusUnknown":
        return f"was lost: {_told(terminated)}"
    lines = terminated.get("message", "").strip().splitlines()
    last = lines[-1] if lines else ""
    if code > _SIGNALS_FROM:
        return describe_end(_SIGNALS_FROM - code, last)
    return describe_end(code, last)


def _waits_for(pod: Object, status: Object, waiting: Object) -> str:
    scheduled = _condition(status, "PodScheduled")
    if scheduled.get("status") == "False":
        return f"a node: {_told(scheduled)}"
    reason = waiting.get("reason", "")
    if reason in _OF_IMAGES:
        return f"its image {_image(pod)}: {_told(waiting)}"
    if reason not in _ORDINARY:
        return f"its container: {_told(waiting)}"
    return next(
        (
            f"its init container {each.get('name')}: {_told(found)}"
            for each in status.get("initContainerStatuses") or ()
            if (found := each.get("state", {}).get("waiting"))
            and found.get("reason", "") not in _ORDINARY
        ),
        "",
    )


def _state(status: Object) -> Object:
    for each in status.get("containerStatuses") or ():
        if each.get("name") == REPLICA_CONTAINER:
            found: Object = each.get("state", {})
            return found
    return {}


def _replica_container(pod: Object) -> Object:
    containers: Sequence[Object] = pod.get("spec", {}).get("containers", ())
    return next((each for each in containers if each.get("name") == REPLICA_CONTAINER), {})


def _image(pod: Object) -> str:
    return str(_replica_container(pod).get("image", ""))


def _memory_limit(pod: Object) -> str:
    limits = _replica_container(pod).get("resources", {}).get("limits", {})
    return str(limits.get("memory", ""))


def _condition(status: Object, kind: str) -> Object:
    found: Sequence[Object] = status.get("conditions") or ()
    return next((each for each in found if each.get("type") == kind), {})


def _told(said: Object) -> str:
    """Return a reason and its message in one line, as the cluster has them."""
    message = " ".join(str(said.get("message", "")).split())
    return ": ".join(filter(None, (said.get("reason", ""), message)))


# Turns the cluster's events of pods into launcher events of replicas.
#
# Rules, each of which a test can break:
#
# - A replica that was expected ends exactly once, whatever the order and number of events.
# - It has ended when its container has ended, its pod is gone, or it was given up.
# - A pod that is missing from a list has ended only if it was there before the list was asked for.
# - The reason why a replica waits is reported when it changes, and cleared when it runs.
# - Unexpected pods are kept until they are adopted.

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
