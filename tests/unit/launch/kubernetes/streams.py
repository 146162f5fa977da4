"""Watch streams of a real API server, as they are kept for tests."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyserve.launch import Ended, Waiting
from pyserve.launch.on_kubernetes.reading import Tracking, read_pod
from pyserve.types import ReplicaId

FOLDER = Path(__file__).parent / "recorded"
# The rest is what pyserve has written itself, and what nobody here reads.
_METADATA = ("name", "uid", "annotations", "creationTimestamp", "deletionTimestamp")
_CONTAINER = ("name", "image", "resources")


@dataclass(frozen=True)
class Stream:
    """One recording.

    Attributes:
        about: What was done to the cluster.
        told: What follows from it, a line each.
        events: Those of the watch, in their order.
    """

    about: str
    told: Sequence[str]
    events: Sequence[dict[str, Any]]

    @classmethod
    def read(cls, path: Path) -> Stream:
        """Read a file of ``FOLDER``."""
        return cls(**json.loads(path.read_text()))

    def write(self, path: Path) -> None:
        """Write such a file, with a line for each event."""
        path.parent.mkdir(exist_ok=True)
        told = json.dumps(self.told, indent=1)
        events = ",\n".join(json.dumps(each) for each in self.events)
        path.write_text(
            f'{{"about": {json.dumps(self.about)},\n"told": {told},\n"events": [\n{events}\n]}}\n'
        )


def trimmed(lines: Iterable[str]) -> list[dict[str, Any]]:
    """Return the events of a watch, with what a launcher reads and all of the status."""
    found = []
    for line in lines:
        event = json.loads(line)
        if event["type"] in ("ADDED", "MODIFIED", "DELETED"):
            pod = event["object"]
            containers = [_part(each, _CONTAINER) for each in pod["spec"]["containers"]]
            kept = {
                "metadata": _part(pod["metadata"], _METADATA),
                "spec": {"containers": containers, **_part(pod["spec"], ("nodeName",))},
                "status": pod["status"],
            }
            found.append({"type": event["type"], "object": kept})
    return found


def _part(whole: dict[str, Any], names: Iterable[str]) -> dict[str, Any]:
    return {name: whole[name] for name in names if name in whole}


def told(events: Iterable[dict[str, Any]], *, replay: int = 1) -> list[str]:
    """Return a launcher's reports on the replicas of a stream.

    Args:
        events: Of the watch.
        replay: How often each is told, as after a watch that began anew.
    """
    events = list(events)
    tracking = Tracking()
    for event in events:
        replica_id = read_pod(event["object"]).replica_id
        if event["type"] == "ADDED" and replica_id:
            tracking.expect(ReplicaId(replica_id))
    said = []
    for event in events:
        for _ in range(replay):
            for each in tracking.handle(read_pod(event["object"]), event["type"]):
                name = each.replica_id
                if isinstance(each, Ended):
                    said.append(f"{name} {each.summary}")
                elif isinstance(each, Waiting):
                    said.append(f"{name} waits for {each.why or 'nothing'}")
    return said
