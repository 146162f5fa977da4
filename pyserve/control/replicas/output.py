"""The most recent output of replicas. For use in one event loop.

Kept in memory, with limits on lines, bytes and deployments. ``PYSERVE_LOG_DIR`` is for complete
output in files.
"""

from __future__ import annotations

import asyncio
import difflib
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field

from pyserve.control.state.mesh import Phase, Replica
from pyserve.errors import MeshNotFound, UsageError
from pyserve.types import DeploymentKey, ReplicaId
from pyserve.wire.v1 import control_pb2

# Of one deployment: what fits a few screens of tracebacks. Arbitrary.
_LINES_MAX = 1000
_KEPT_BYTES_MAX = 256 << 10
# Those that have gone are kept too: why they ended is in their last lines.
_DEPLOYMENTS_MAX = 200
# For a reader that is slower than the replicas; beyond this lines are dropped, and counted.
_UNREAD_MAX = 1000
Write = Callable[[control_pb2.LogLine], Awaitable[None]]


@dataclass(slots=True)
class _Kept:
    """The last lines of one deployment; ``size_bytes`` is at most ``_KEPT_BYTES_MAX``."""

    lines: deque[control_pb2.LogLine] = field(default_factory=deque)
    size_bytes: int = 0

    def add(self, line: control_pb2.LogLine) -> None:
        self.lines.append(line)
        self.size_bytes += line.ByteSize()
        while len(self.lines) > _LINES_MAX or self.size_bytes > _KEPT_BYTES_MAX:
            self.size_bytes -= self.lines.popleft().ByteSize()


@dataclass(eq=False, slots=True)
class _Reader:
    key: DeploymentKey
    dropped: int = 0
    unread: asyncio.Queue[control_pb2.LogLine] = field(
        default_factory=lambda: asyncio.Queue(_UNREAD_MAX)
    )

    def offer(self, line: control_pb2.LogLine) -> None:
        if self.unread.full():
            self.dropped += 1
        else:
            self.unread.put_nowait(line)

    async def next(self) -> control_pb2.LogLine:
        if self.dropped and self.unread.empty():
            dropped, self.dropped = self.dropped, 0
            return control_pb2.LogLine(line=f"... {dropped} lines were dropped, read too slowly")
        return await self.unread.get()


class Output:
    """The lines that replicas write to their standard output and error."""

    def __init__(self) -> None:
        # In the order of the last line, oldest first.
        self._kept: dict[DeploymentKey, _Kept] = {}
        self._last_words = OutputTails()
        self._readers: set[_Reader] = set()

    def add(self, key: DeploymentKey, replica_id: ReplicaId, text: str) -> None:
        """Keep a line, and pass it to the followers."""
        line = control_pb2.LogLine(replica_id=replica_id, line=text)
        kept = self._kept.pop(key, None) or _Kept()
        kept.add(line)
        self._kept[key] = kept
        self._last_words.add(replica_id, line)
        if len(self._kept) > _DEPLOYMENTS_MAX:
            del self._kept[next(iter(self._kept))]
        for reader in self._readers:
            if reader.key == key:
                reader.offer(line)

    def add_text(self, key: DeploymentKey, replica_id: ReplicaId, text: str) -> None:
        """Keep a replica's message that did not come through its output."""
        for line in text.splitlines():
            self.add(key, replica_id, line)

    def end(self, replica: Replica, summary: str) -> None:
        """A replica has ended; if that was not wanted, its last lines are kept for longer.

        Args:
            replica: as it was before.
            summary: how its process has ended.
        """
        whys = ["did not answer"] if replica.hangs else []
        if replica.ailment:
            whys.append(f"failed its health check ({replica.ailment})")
        if replica.was_lost:
            whys.append("had left the mesh before")
        is_wanted = replica.phase is Phase.STOPPING and not (whys or replica.stops_itself)
        said = "; it ".join([summary, *whys])
        self._last_words.end(replica.key, replica.id, said, is_wanted=is_wanted)

    def ended(self, key: DeploymentKey) -> list[control_pb2.EndedReplica]:
        """Return the replicas of a deployment that have ended recently, latest last."""
        return self._last_words.ended(key)

    def find(
        self, present: Iterable[DeploymentKey], application: str, deployment: str
    ) -> DeploymentKey:
        """Return the deployment of a name; the application may be left out.

        Args:
            present: the deployments that there are; others may have left lines.
            application: its name; "": any.
            deployment: its name.

        Raises:
            MeshNotFound: there is none.
            UsageError: there are several.
        """
        there, gone = set(present), set(self._kept)
        for known in (there, there | gone):
            found = sorted(
                (
                    key
                    for key in known
                    if key.deployment == deployment and application in ("", key.application)
                ),
                key=str,
            )
            if len(found) == 1:
                return found[0]
            if found:
                names = ", ".join(key.application for key in found)
                raise UsageError(
                    f"several applications have a deployment {deployment!r}; name one of them "
                    f"with --application: {names}"
                )
        names_of_all = sorted({key.deployment for key in there | gone})
        near = difflib.get_close_matches(deployment, names_of_all, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"there is: {', '.join(names_of_all)}"
        where = f" in application {application!r}" if application else ""
        if not names_of_all:
            hint = "nothing is deployed"
        raise MeshNotFound(f"there is no deployment {deployment!r}{where}; {hint}")

    async def send(
        self,
        key: DeploymentKey,
        write: Write,
        *,
        lines_max: int,
        follow: bool,
        replica_id: str = "",
    ) -> None:
        """Write the last lines of a deployment, and those that come if ``follow``.

        Args:
            key: the deployment.
            write: takes one line after the other.
            lines_max: of those that are kept; 0: all.
            follow: go on until cancelled.
            replica_id: of this one only.
        """
        kept = list(self._kept[key].lines) if key in self._kept else []
        if replica_id:
            of_it = [line for line in kept if line.replica_id == replica_id]
            # Those of others may have taken the place of what it wrote.
            kept = max(of_it, self._last_words.lines(key, replica_id), key=len)
        reader = _Reader(key)
        # Before anything is awaited, so that no line is missed between the two.
        self._readers.add(reader)
        try:
            for line in kept[-lines_max:] if lines_max else kept:
                await write(line)
            while follow:
                line = await reader.next()
                if line.replica_id in ("", replica_id) or not replica_id:
                    await write(line)
        finally:
            self._readers.discard(reader)


# Each replica's last lines, kept after its end if that was not wanted.
#
# The lines of a busy deployment would soon displace those that say why a replica has ended.

# Of one replica: a traceback and what was before it. Arbitrary, both.
_TAIL_LINES_MAX = 40
_TAIL_BYTES_MAX = 8 << 10
# Of one deployment, the latest: one that dies again and again says the same each time.
_ENDED_MAX = 3
# How long they are kept for someone to look.
_KEPT_S = 3600.0


@dataclass(slots=True)
class _Tail:
    lines: deque[control_pb2.LogLine] = field(default_factory=deque)
    size_bytes: int = 0

    def add(self, line: control_pb2.LogLine) -> None:
        self.lines.append(line)
        self.size_bytes += len(line.line)
        while len(self.lines) > _TAIL_LINES_MAX or (
            self.size_bytes > _TAIL_BYTES_MAX and len(self.lines) > 1
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
