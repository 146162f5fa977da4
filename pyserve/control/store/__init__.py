"""The records that a new controller needs from the one before, and where they are kept."""

from pyserve.control.store.records import Changes, MemoryStore, Records, Store, changes_between
from pyserve.control.store.sqlite import Copies, SqliteStore

__all__ = ["Changes", "Copies", "MemoryStore", "Records", "SqliteStore", "Store", "changes_between"]
