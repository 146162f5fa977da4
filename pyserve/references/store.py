"""Decides which values a process holds, for which holders, and until when. Pure.

A value exists from ``add`` until it is freed, which happens once. It may be taken as long as it is
open; ``forget`` closes it. A closed value is freed when all its holders have dropped it or are
gone. An open one is freed when it has had no holders and no use for ``Limits.unused_s``. A taken
value counts towards the limits until it is dropped, since its memory is in use.

The store only does the accounting. The driver owns the memory, and releases it when a method
returns its key as freed.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of a store.

    Attributes:
        held_bytes_max: Sum of all values.
        unused_s: Seconds after which a value that nobody has is freed.
    """

    held_bytes_max: int = 1 << 30  # api.md section 2
    unused_s: float = 60.0  # api.md section 2


@dataclass(slots=True)
class _Value:
    size_bytes: int
    is_open: bool = True
    # How often each holder has it; without zeros.
    holders: Counter[int] = field(default_factory=Counter)


class Store:
    """The accounts of one process. Times are seconds of any monotonic clock.

    Attributes:
        limits: Its bounds.
        held_bytes: Sum of all values; never above ``limits.held_bytes_max``.
    """

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.held_bytes = 0
        self._values: dict[str, _Value] = {}
        self._keys_by_holder: dict[int, set[str]] = {}
        # Values that nobody has, by the moment of their last use, oldest first.
        self._unused: OrderedDict[str, float] = OrderedDict()

    def __len__(self) -> int:
        return len(self._values)

    def __contains__(self, key: str) -> bool:
        return key in self._values

    def add(self, key: str, size_bytes: int, now: float) -> bool:
        """Hold a value.

        Returns:
            Whether there is room for it; without, nothing has changed.
        """
        assert key not in self._values
        if self.held_bytes + size_bytes > self.limits.held_bytes_max:
            return False
        self.held_bytes += size_bytes
        self._values[key] = _Value(size_bytes)
        self._unused[key] = now
        return True

    def take(self, key: str, holder: int, now: float) -> bool:
        """Give ``holder`` the value once more; ``False``: it was freed, or is closed."""
        del now  # Taken values do not age.
        value = self._values.get(key)
        if value is None or not value.is_open:
            return False
        value.holders[holder] += 1
        self._keys_by_holder.setdefault(holder, set()).add(key)
        self._unused.pop(key, None)
        return True

    def drop(self, key: str, holder: int, now: float) -> list[str]:
        """Take back one ``take`` of ``holder``; return the keys that are freed by it."""
        value = self._values.get(key)
        if value is None or not value.holders[holder]:
            # A holder that never had it, or no longer.
            return []
        value.holders[holder] -= 1
        if value.holders[holder]:
            return []
        return self._left(key, value, holder, now)

    def disconnect(self, holder: int, now: float) -> list[str]:
        """Take back everything that ``holder`` has; return the keys that this frees."""
        freed = []
        for key in sorted(self._keys_by_holder.get(holder, ())):
            freed += self._left(key, self._values[key], holder, now)
        return freed

    def forget(self, key: str) -> list[str]:
        """Close a value, since its future user does not want it any more; return the freed keys."""
        value = self._values.get(key)
        if value is None:
            return []
        value.is_open = False
        if value.holders:
            return []
        self._free(key)
        return [key]

    def expire(self, now: float) -> list[str]:
        """Free what nobody has used for too long; return the keys."""
        freed = []
        while (due := self.next_expiry()) is not None and due <= now:
            key = next(iter(self._unused))
            self._free(key)
            freed.append(key)
        return freed

    def next_expiry(self) -> float | None:
        """Return when ``expire`` has something to free, ``None`` while nothing ages."""
        if not self._unused:
            return None
        return next(iter(self._unused.values())) + self.limits.unused_s

    def clear(self) -> list[str]:
        """Free everything; return the keys."""
        freed = sorted(self._values)
        for key in freed:
            self._free(key)
        return freed

    def _left(self, key: str, value: _Value, holder: int, now: float) -> list[str]:
        del value.holders[holder]
        keys = self._keys_by_holder[holder]
        keys.discard(key)
        if not keys:
            del self._keys_by_holder[holder]
        if value.holders:
            return []
        if value.is_open:
            self._unused[key] = now
            return []
        self._free(key)
        return [key]

    def _free(self, key: str) -> None:
        value = self._values.pop(key)
        self.held_bytes -= value.size_bytes
        self._unused.pop(key, None)
        for holder in value.holders:
            keys = self._keys_by_holder[holder]
            keys.discard(key)
            if not keys:
                del self._keys_by_holder[holder]
