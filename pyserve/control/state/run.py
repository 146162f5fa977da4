"""One ``pyserve run`` that follows from a terminal. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from pyserve.wire.v1 import control_pb2


@dataclass(frozen=True, slots=True)
class Run:
    """One ``pyserve run``.

    Attributes:
        id: random, since process ids of different machines may be equal.
        pid: for people.
    """

    id: str
    pid: int

    def __str__(self) -> str:
        return f"pyserve run (pid {self.pid})"


def run_of(message: control_pb2.Run) -> Run | None:
    """Read a message; ``None``: another kind of program."""
    return Run(message.id, message.pid) if message.id else None
