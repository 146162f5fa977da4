"""What this replica keeps in memory, so that calls which would find it are sent here.

A replica says which entries it has: blocks of a prompt's prefix, a user's session, the encoding
of an image, an adapter, a row of features. A call says which it would like to find
(``handle.options(cache_keys=[...])``, or the header ``pyserve-cache-keys``), and routers send it
to where it is expected to be done first.

An entry is known by a key: ``bytes``, ``str`` or ``int``. Keys are hashed to 64 bits where they
enter, a ``str`` by its UTF-8 bytes and an ``int`` by its decimal digits, so ``7``, ``"7"`` and
``b"7"`` are one key. Two keys with the same hash are taken for one entry; that costs a miss, never
a wrong answer.

All functions may be called from any thread, cost a few microseconds, and never wait. Outside a
replica, and in local testing mode, where one process has all replicas, they check their arguments
and do nothing else that can be seen.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import Protocol, TypeAlias

from pyserve.errors import KindError, OptionError

Key: TypeAlias = bytes | str | int
"""The name of an entry."""

MAX_KEYS = 32_768
"""How many entries a replica reports unless ``set_max_keys`` says otherwise."""


class Reports(Protocol):
    """Who tells routers: the native half of a replica's server."""

    def set_cache_keys_max(self, keys_max: int) -> None:
        """Report at most so many entries."""

    def store_cache(self, keys: list[Key], parent: Key | None = None) -> None:
        """Report entries that are there."""

    def remove_cache(self, keys: list[Key]) -> None:
        """Report entries that are not there any more."""

    def clear_cache(self) -> None:
        """Report that none is there."""


def stored(keys: Iterable[Key], parent: Key | None = None) -> None:
    """Say that entries are there.

    Args:
        keys: In any order without a parent; otherwise the blocks of a chain, in its order.
        parent: The block before the first of them. A block of a chain is found only by a call that
            names the block before it too, and finds it. ``None``: each entry stands alone, as the
            first block of a chain does.

    Raises:
        KindError: A key is neither bytes, str nor int.
    """
    _PROCESS.store(_checked("stored", keys), _parent(parent))


def removed(keys: Iterable[Key]) -> None:
    """Say that entries are not there any more; unknown ones are ignored.

    Raises:
        KindError: A key is neither bytes, str nor int.
    """
    _PROCESS.remove(_checked("removed", keys))


def cleared() -> None:
    """Say that no entry is there any more."""
    _PROCESS.clear()


def set_max_keys(max_keys: int) -> None:
    """Report at most so many entries; beyond that those stored longest ago are dropped.

    They count in ``pyserve_replica_cache_dropped_total``. Calls find them by chance only.

    Args:
        max_keys: At least 1; 32768 unless this is called.

    Raises:
        OptionError: It is no number, or below 1.
    """
    value: object = max_keys
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise OptionError(f"cache.set_max_keys: max_keys is {max_keys!r}; use an integer from 1 on")
    _PROCESS.limit(max_keys)


class Book:
    """The entries of one process until its server reports them, then the way there."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._reports: Reports | None = None
        self._max_keys = MAX_KEYS
        # By key, in the order in which they were stored: the block before it.
        self._early: dict[Key, Key | None] = {}

    def report_to(self, reports: Reports) -> None:
        """Pass on what was stored until now, and from then on all at once."""
        with self._lock:
            reports.set_cache_keys_max(self._max_keys)
            for key, parent in self._early.items():
                reports.store_cache([key], parent)
            self._early = {}
            self._reports = reports

    def store(self, keys: list[Key], parent: Key | None) -> None:
        """See ``stored``."""
        with self._lock:
            if self._reports is not None:
                self._reports.store_cache(keys, parent)
                return
            before = parent
            for key in keys:
                self._early.pop(key, None)
                self._early[key] = before
                before = None if parent is None else key
            while len(self._early) > self._max_keys:
                del self._early[next(iter(self._early))]

    def remove(self, keys: list[Key]) -> None:
        """See ``removed``."""
        with self._lock:
            if self._reports is not None:
                self._reports.remove_cache(keys)
            for key in keys:
                self._early.pop(key, None)

    def clear(self) -> None:
        """See ``cleared``."""
        with self._lock:
            if self._reports is not None:
                self._reports.clear_cache()
            self._early = {}

    def limit(self, max_keys: int) -> None:
        """See ``set_max_keys``."""
        with self._lock:
            self._max_keys = max_keys
            if self._reports is not None:
                self._reports.set_cache_keys_max(max_keys)


def _checked(where: str, keys: Iterable[Key]) -> list[Key]:
    if isinstance(keys, str | bytes):
        raise KindError(f"cache.{where}: the keys are {keys!r}; give a list of keys, as [{keys!r}]")
    found = list(keys)
    for key in found:
        if isinstance(key, bool) or not isinstance(key, bytes | str | int):
            raise KindError(f"cache.{where}: a key is {key!r}; use bytes, str or int")
    return found


def _parent(parent: Key | None) -> Key | None:
    return None if parent is None else _checked("stored: parent", [parent])[0]


def report_to(reports: Reports) -> None:
    """Let this process's server report its entries; for ``pyserve.replica``."""
    _PROCESS.report_to(reports)


# Of the process, since user code on any thread says what its replica keeps.
_PROCESS = Book()
