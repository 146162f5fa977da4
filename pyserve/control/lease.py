"""A home directory that one process hands to another."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self


@dataclass(frozen=True, kw_only=True)
class Lease:
    """A home directory handed from one process to another, which no other can take in between.

    Attributes:
        lock: descriptor of the locked file in the home directory.
        mark: descriptor of the locked mark of the run directory.
        run_dir: where sockets and the token are.
    """

    lock: int
    mark: int
    run_dir: Path

    def argument(self) -> str:
        """Return it as a command-line argument."""
        return f"{self.lock},{self.mark},{self.run_dir}"

    @classmethod
    def from_argument(cls, text: str) -> Self:
        """Read the output of ``argument``."""
        lock, mark, run_dir = text.split(",", 2)
        return cls(lock=int(lock), mark=int(mark), run_dir=Path(run_dir))

    def copy(self) -> Lease:
        """Return a copy with descriptors of its own."""
        return replace(self, lock=os.dup(self.lock), mark=os.dup(self.mark))
