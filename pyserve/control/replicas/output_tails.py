"""Each replica's last lines, kept after its end if that was not wanted.

The lines of a busy deployment would soon displace those that say why a replica has ended.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from pyserve.types import DeploymentKey, ReplicaId
from pyserve.wire.v1 import control_pb2

# Of one replica: a traceback and what was before it. Arbitrary, both.
_LINES_MAX = 40
_KEPT_BYTES_MAX = 8 << 10
# Of one deployment, the latest: one that dies again and again says the same each time.
_ENDED_MAX = 3
_DEPLOYMENTS_MAX = 200
# How long they are kept for someone to look.
_KEPT_S = 3600.0


@dataclass(slots=True)
class _Tail:
    lines: deque[control_pb2.LogLine] = field(default_factory=deque)
    size_bytes: int = 0

    def add(self, line: control_pb2.LogLine) -> None:
        self.lines.append(line)
        self.size_bytes += len(line.line)
        while len(self.lines) > _LINES_MAX or (
            self.size_bytes > _KEPT_BYTES_MAX and len(self.lines) > 1
        ):
            self.size_bytes -= len(self.lines.popleft().line)


class OutputTails:
    """The tails of replicas that live, and of those that have ended recently.

    Args:
        clock: Unix time.
    """

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._tails: dict[ReplicaId, _Tail] = {}
        # In the order of the last end, oldest first.
        self._ended: dict[DeploymentKey, deque[control_pb2.EndedReplica]] = {}

    def add(self, replica_id: ReplicaId, line: control_pb2.LogLine) -> None:
        """Keep a line of a replica that lives."""
        tail = self._tails.get(replica_id)
        if tail is None:
            tail = self._tails[replica_id] = _Tail()
        tail.add(line)

    def end(
        self, key: DeploymentKey, replica_id: ReplicaId, summary: str, *, is_wanted: bool
    ) -> None:
        """The replica has ended; what it wrote is kept, unless that ``is_wanted``."""
        tail = self._tails.pop(replica_id, None)
        if is_wanted:
            return
        ended = self._ended.pop(key, None) or deque(maxlen=_ENDED_MAX)
        ended.append(
            control_pb2.EndedReplica(
                replica_id=replica_id,
                ended_at=self._clock(),
                summary=summary,
                lines=[line.line for line in tail.lines] if tail is not None else (),
            )
        )
        self._ended[key] = ended
        if len(self._ended) > _DEPLOYMENTS_MAX:
            del self._ended[next(iter(self._ended))]

    def ended(self, key: DeploymentKey) -> list[control_pb2.EndedReplica]:
        """Return those of a deployment, of the last hour, latest last."""
        since = self._clock() - _KEPT_S
        return [each for each in self._ended.get(key, ()) if each.ended_at >= since]

    def lines(self, key: DeploymentKey, replica_id: str) -> list[control_pb2.LogLine]:
        """Return the last lines of one replica, whether it lives or not."""
        tail = self._tails.get(ReplicaId(replica_id))
        if tail is not None:
            return list(tail.lines)
        return [
            control_pb2.LogLine(replica_id=replica_id, line=line)
            for each in self._ended.get(key, ())
            if each.replica_id == replica_id
            for line in each.lines
        ]
