"""Accounts for every call of a soak: each one ends once, and in a way that it may end. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

# How long after a replica was killed a call may still be sent to it: the time that routers have
# to notice. The end of a connection is noticed at once; the bound is the design's for liveness
# (a PING after 500 ms of silence) with as much again for a busy machine.
KILL_NOTICE_S = 1.0
_SAMPLES_MAX = 20


@dataclass(frozen=True)
class Kind:
    """A kind of call.

    Attributes:
        name: In the report.
        may_end: Names of the statuses with which it may end, whatever happens to replicas.
        may_end_at_kill: Further ones, if a replica was killed while it ran.
    """

    name: str
    may_end: frozenset[str]
    may_end_at_kill: frozenset[str] = frozenset({"UNAVAILABLE"})


@dataclass(frozen=True)
class CallId:
    """One call of a ledger."""

    number: int


@dataclass
class Ledger:
    """Opens and closes calls; what does not add up is counted by name.

    Attributes:
        ended: Calls by kind and status.
        problems: What must not happen, by name: all zero in a good run.
        samples: The texts of the first few statuses that must not be.
    """

    ended: dict[str, Counter[str]] = field(default_factory=dict)
    problems: Counter[str] = field(default_factory=Counter)
    samples: list[str] = field(default_factory=list)
    _begun: int = 0
    _open: dict[int, tuple[Kind, float]] = field(default_factory=dict)
    _kills_s: list[float] = field(default_factory=list)

    @property
    def begun(self) -> int:
        """Calls so far."""
        return self._begun

    @property
    def open(self) -> int:
        """Calls that have not ended."""
        return len(self._open)

    def begin(self, kind: Kind, now_s: float) -> CallId:
        """Open a call."""
        number = self._begun
        self._begun += 1
        self._open[number] = (kind, now_s)
        return CallId(number)

    def end(self, call: CallId, status: str, now_s: float, details: str = "") -> None:
        """Close a call with the name of its status and its text.

        A call that has been closed before was answered twice.
        """
        entry = self._open.pop(call.number, None)
        if entry is None:
            self.problems["answered twice"] += 1
            return
        kind, begun_s = entry
        self.ended.setdefault(kind.name, Counter())[status] += 1
        if status in kind.may_end:
            return
        met_a_kill = self._met_a_kill(begun_s, now_s)
        if status in kind.may_end_at_kill and met_a_kill:
            return
        self.problems[f"{kind.name} ended {status}"] += 1
        if len(self.samples) < _SAMPLES_MAX:
            when = "met a kill" if met_a_kill else "met no kill"
            self.samples.append(f"{kind.name} of {now_s - begun_s:.3f} s, {when}: {details}")

    def wrong(self, problem: str) -> None:
        """Count an answer with a wrong content."""
        self.problems[problem] += 1

    def on_kill(self, now_s: float) -> None:
        """Note that a replica was killed: calls that were sent to it may end UNAVAILABLE."""
        self._kills_s.append(now_s)

    def finish(self) -> None:
        """Count what is still open as never answered."""
        if self._open:
            self.problems["never answered"] += len(self._open)
            self._open.clear()

    def totals(self) -> Mapping[str, int]:
        """Return ended calls by status."""
        return dict(sum(self.ended.values(), Counter()))

    def _met_a_kill(self, begun_s: float, ended_s: float) -> bool:
        return any(
            begun_s <= kill_s + KILL_NOTICE_S and ended_s >= kill_s for kill_s in self._kills_s
        )
