"""The interface of a store of records, and a store in memory."""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass, field
from typing import Protocol

from pyserve.control.store.records import Key, Record, Records


@dataclass(frozen=True, slots=True)
class Changes:
    """One transaction: all of it is kept, or nothing."""

    put: Mapping[Key, Record] = field(default_factory=dict)
    removed: Set[Key] = frozenset()

    def __bool__(self) -> bool:
        return bool(self.put or self.removed)


class Store(Protocol):
    """Keeps records. One process uses it, in one thread."""

    def load(self) -> Records:
        """Return everything that is kept.

        Raises:
            MeshError: it cannot be read; the text says what to do.
        """

    def is_lost(self) -> bool:
        """Say whether everything was removed, so that it has to be written again."""

    def write(self, changes: Changes) -> None:
        """Keep a change; a controller that is killed right after it does not undo it.

        Raises:
            MeshError: nothing of it is kept; the text says why, and what to do.
        """

    def close(self) -> None:
        """Close it. Idempotent."""


class MemoryStore:
    """Keeps records as long as it lives: for tests, as a fake of the other one."""

    def __init__(self) -> None:
        self._records: dict[Key, Record] = {}

    def load(self) -> Records:
        """Return what was written; see ``Store.load``."""
        return dict(self._records)

    def is_lost(self) -> bool:
        """It cannot be lost; see ``Store.is_lost``."""
        return False

    def write(self, changes: Changes) -> None:
        """Keep it as long as this lives; see ``Store.write``."""
        self._records.update(changes.put)
        for key in changes.removed:
            self._records.pop(key, None)

    def close(self) -> None:
        """Do nothing; see ``Store.close``."""


def changes_between(before: Records, after: Records) -> Changes:
    """Return what makes ``after`` of ``before``."""
    return Changes(
        put={
            key: record
            for key, record in after.items()
            # The very same is equal, which data classes find out field by field.
            if (former := before.get(key)) is not record and former != record
        },
        removed=before.keys() - after.keys(),
    )
