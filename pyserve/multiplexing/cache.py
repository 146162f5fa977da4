"""Which models stay loaded, which load next, which have to go: a pure state machine.

It owns the budget of one loader, counted in models and optionally in bytes, and never exceeds
it: a load starts only when its room is free, so eviction comes before loading. It performs no
load itself; the driver in ``loader.py`` calls it with the loop's time and does what it says.
A model that is held by a request, or pinned, is never evicted; when nothing can go, the next
load waits in a queue.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from pyserve.config.validation import option_error
from pyserve.errors import OptionError
from pyserve.multiplexing.history import Failure, History, Record
from pyserve.observe.metrics.families import Tally

Model = TypeVar("Model")

UNLIMITED = -1
POLICIES = ("lru", "gdsf")


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheOptions:
    """The budget of one loader and what goes first when it is used up.

    Attributes:
        max_num_models_per_replica: Models loaded or loading at once, at least 1; -1: no limit.
        max_bytes: Sum of their sizes, at least 1; ``None``: not counted.
        policy: ``"lru"``, the one not used for longest goes; or ``"gdsf"``, the one whose next
            use is cheapest to miss (see ``ModelCache``).

    Raises:
        OptionError: A value is out of range.
    """

    max_num_models_per_replica: int = 3
    max_bytes: int | None = None
    policy: str = "lru"

    def __post_init__(self) -> None:
        limit: object = self.max_num_models_per_replica
        if not isinstance(limit, int) or isinstance(limit, bool) or (limit < 1 and limit != -1):
            text = (
                f"max_num_models_per_replica: {limit!r} is not allowed; write a whole number of "
                f"at least 1, or -1 for no limit"
            )
            raise option_error(text, limit, int)
        size: object = self.max_bytes
        if size is not None and (not isinstance(size, int) or isinstance(size, bool) or size < 1):
            text = (
                f"max_bytes: {size!r} is not allowed; write a whole number of bytes of at least "
                f"1, or None to count models only"
            )
            raise option_error(text, size, int)
        if self.policy not in POLICIES:
            raise OptionError(f"policy: {self.policy!r} is not allowed; write 'lru' or 'gdsf'")

    @property
    def is_limited(self) -> bool:
        """Whether a model may ever have to go."""
        return self.max_num_models_per_replica != UNLIMITED or self.max_bytes is not None


@dataclass(slots=True, eq=False)
class Entry(Generic[Model]):
    """A loaded model. ``hold_count`` requests use it; ``is_pinned`` keeps it without any."""

    model_id: str
    model: Model
    size_bytes: int
    record: Record
    floor: float
    hold_count: int = 0
    is_pinned: bool = False

    @property
    def is_evictable(self) -> bool:
        """Whether nobody uses or pins it."""
        return self.hold_count == 0 and not self.is_pinned


@dataclass(frozen=True, slots=True)
class Start(Generic[Model]):
    """A load that begins now, after these have been unloaded."""

    model_id: str
    evicted: list[Entry[Model]]


@dataclass(frozen=True, slots=True)
class Loaded(Generic[Model]):
    """The outcome of a finished load.

    Attributes:
        entry: The model.
        stays: Whether it is in the cache. If not, its size was a surprise and it does not fit:
            it has to be unloaded, and waits for room again unless there is a ``failure``.
        evicted: Models that must be unloaded because this one is larger than expected.
        failure: Why it never fits.
    """

    entry: Entry[Model]
    stays: bool
    evicted: list[Entry[Model]]
    failure: Failure | None = None


@dataclass(slots=True)
class CacheStats:
    """Counts of a cache since it was made, and its present contents.

    Attributes:
        hits: Uses of a model that was loaded.
        misses: Uses that waited for a load, their own or one under way.
        loads, loads_failed, loads_cancelled, loads_dropped: Loads that ended, by their end:
            the model stayed, the loader raised, nobody waited any more, it did not fit.
        evictions: Models unloaded to make room.
        unloads: Models unloaded on demand, or when the replica stopped.
        reloads: Loads that twice the room would have saved, see ``_Larger``. Many of them mean
            that the budget is too small for the traffic: the cache thrashes.
        load_s_total: Seconds spent in loads that succeeded.
        models, bytes_used, loading, waiting, pinned: Now: loaded models, their bytes, loads
            under way, loads that wait for room, models that are held or pinned.
    """

    hits: int = 0
    misses: int = 0
    loads: int = 0
    loads_failed: int = 0
    loads_cancelled: int = 0
    loads_dropped: int = 0
    evictions: int = 0
    unloads: int = 0
    reloads: int = 0
    load_s_total: float = 0.0
    models: int = 0
    bytes_used: int = 0
    loading: int = 0
    waiting: int = 0
    pinned: int = 0


class ModelCache(Generic[Model]):
    """Decides for one loader; times are seconds of any clock that does not go back.

    The policy ``gdsf`` is Greedy-Dual-Size-Frequency (Cherkasova, HPL-98-69R1): the lowest
    ``floor + frequency x load_seconds / bytes`` goes first, where ``floor`` is the value of the
    last evicted model when this one was last used, so that what was valuable long ago ages, and
    the frequency halves with every ``HALF_LIFE_USES`` uses of the cache. Without ``max_bytes``
    every model counts as one byte.

    Invariants: loaded + loading + leaving <= max_num_models_per_replica; the same for bytes;
    an evicted entry was evictable; each started load ends in exactly one counter.
    """

    def __init__(self, options: CacheOptions, *, is_compared: bool = True) -> None:
        self.options = options
        # One without a limit evicts nothing, so that more room saves nothing.
        self._larger = _Larger(options) if is_compared and options.is_limited else None
        self.load_times = Tally()
        self._stats = CacheStats()
        self._loaded: dict[str, Entry[Model]] = {}
        self._leaving: dict[str, Entry[Model]] = {}  # To be unloaded when nobody holds it.
        self._loading: dict[str, int] = {}  # Bytes reserved.
        self._queue: OrderedDict[str, None] = OrderedDict()
        self._history = History()
        self._floor = 0.0

    # What users ask for.

    def use(self, model_id: str) -> Entry[Model] | None:
        """Count a use and return the loaded model, ``None`` if it has to be loaded."""
        entry = self._loaded.get(model_id)
        record = self._history.use(model_id, entry.record if entry else None)
        if self._larger is not None:
            self._larger.use(model_id, entry)
        if entry is None:
            self._stats.misses += 1
            record.misses += 1
            return None
        self._stats.hits += 1
        record.hits += 1
        entry.record = record
        entry.floor = self._floor
        return entry

    def request(self, model_id: str, now: float) -> Failure | None:
        """Ask for a load, once; return why not while the last failure is too recent."""
        if model_id in self._loaded or model_id in self._loading or model_id in self._queue:
            return None
        failure = self._history.failure(model_id, now)
        if failure is None:
            self._queue[model_id] = None
        return failure

    def withdraw(self, model_id: str) -> None:
        """Take back a request whose load has not started."""
        self._queue.pop(model_id, None)

    def hold(self, entry: Entry[Model]) -> None:
        """Keep a model until ``release``; holds are counted."""
        entry.hold_count += 1

    def release(self, entry: Entry[Model]) -> Entry[Model] | None:
        """End one hold; return the entry if it has to be unloaded now."""
        assert entry.hold_count > 0, f"invariant: released {entry.model_id!r} as often as held"
        entry.hold_count -= 1
        if entry.hold_count or self._leaving.get(entry.model_id) is not entry:
            return None
        del self._leaving[entry.model_id]
        return self._gone(entry)

    def pin(self, model_id: str, *, pinned: bool) -> None:
        """Keep a loaded model whether it is used or not, or no longer."""
        if model_id in self._loaded:
            self._loaded[model_id].is_pinned = pinned
        if self._larger is not None:
            self._larger.pin(model_id, pinned=pinned)

    def unload(self, model_id: str) -> Entry[Model] | None:
        """Take a model out, pinned or not; return it if it has to be unloaded now.

        One that is held leaves with its last holder. Until then it counts in the budget, and
        new requests for it wait for another load.
        """
        if self._larger is not None:
            self._larger.forget(model_id)
        entry = self._loaded.pop(model_id, None)
        if entry is None:
            return None
        entry.is_pinned = False
        if entry.hold_count:
            self._leaving[model_id] = entry
            return None
        return self._gone(entry)

    # Operations of the code that runs the loads.

    def start_loads(self) -> list[Start[Model]]:
        """Return the loads that begin now, in the order of their requests.

        None overtakes one that waits for room, so that a large model is not starved.
        """
        started: list[Start[Model]] = []
        for model_id in tuple(self._queue):
            if model_id in self._leaving:
                continue
            size_bytes = self._expected_bytes(model_id)
            victims = self._room_for(size_bytes)
            if victims is None:
                break
            self._evict(victims)
            del self._queue[model_id]
            self._loading[model_id] = size_bytes
            if self._larger is not None and self._larger.saves(model_id):
                self._stats.reloads += 1
            started.append(Start(model_id, victims))
        return started

    def loaded(
        self, model_id: str, model: Model, *, size_bytes: int, load_s: float, now: float
    ) -> Loaded[Model]:
        """Record that a load succeeded; ``Loaded`` explains the possible outcomes."""
        del self._loading[model_id]
        record = self._history.loaded(model_id, size_bytes=size_bytes, load_s=load_s)
        entry = Entry(model_id, model, size_bytes, record, self._floor)
        limit = self.options.max_bytes
        if limit is not None and size_bytes > limit:
            self._stats.loads_dropped += 1
            cause = f"it has {size_bytes} bytes and max_bytes is {limit}"
            failure = self._history.failed(model_id, cause, now)
            return Loaded(entry, stays=False, evicted=[], failure=failure)
        victims = self._room_for(size_bytes)
        if victims is None:
            self._stats.loads_dropped += 1
            self._queue[model_id] = None
            self._queue.move_to_end(model_id, last=False)
            return Loaded(entry, stays=False, evicted=[])
        self._evict(victims)
        self._stats.loads += 1
        record.loads += 1
        self._stats.load_s_total += load_s
        self.load_times.add(load_s)
        entry.floor = self._floor
        self._loaded[model_id] = entry
        if self._larger is not None:
            self._larger.loaded(entry)
        return Loaded(entry, stays=True, evicted=victims)

    def failed(
        self, model_id: str, cause: str, now: float, answer: Exception | None = None
    ) -> Failure:
        """Record that a load failed; the next one starts after a pause that doubles."""
        del self._loading[model_id]
        if self._larger is not None:
            self._larger.forget(model_id)
        self._stats.loads_failed += 1
        return self._history.failed(model_id, cause, now, answer)

    def cancelled(self, model_id: str) -> None:
        """Record that a load was given up; the next request starts another."""
        del self._loading[model_id]
        self._stats.loads_cancelled += 1

    # What can be seen.

    def loaded_ids(self) -> list[str]:
        """Return the ids that are loaded."""
        return list(self._loaded)

    def model_ids(self) -> list[str]:
        """Return the ids that are loaded or loading."""
        return [*self._loaded, *self._loading]

    def entries(self) -> list[Entry[Model]]:
        """Return what is loaded."""
        return list(self._loaded.values())

    def is_loaded(self, model_id: str) -> bool:
        """Return whether a model is loaded."""
        return model_id in self._loaded

    def is_waiting(self, model_id: str) -> bool:
        """Return whether a load waits for room."""
        return model_id in self._queue

    def stats(self) -> CacheStats:
        """Return the counters, with what is held now."""
        found = replace(self._stats)
        found.models = len(self._loaded) + len(self._leaving)
        found.bytes_used = sum(entry.size_bytes for entry in self._entries())
        found.loading = len(self._loading)
        found.waiting = len(self._queue)
        found.pinned = sum(not entry.is_evictable for entry in self._entries())
        return found

    # How it decides.

    def _entries(self) -> Iterable[Entry[Model]]:
        return (*self._loaded.values(), *self._leaving.values())

    def _expected_bytes(self, model_id: str) -> int:
        """The size that this model had, else the largest seen, else the whole budget.

        Too large a guess delays a load; too small a one may waste it.
        """
        limit = self.options.max_bytes
        return 0 if limit is None else min(limit, self._history.expected_bytes(model_id) or limit)

    def _room_for(self, size_bytes: int) -> list[Entry[Model]] | None:
        """Return what has to go for a load, cheapest first; ``None``: not enough can go."""
        limit, limit_bytes = self.options.max_num_models_per_replica, self.options.max_bytes
        count = len(self._loaded) + len(self._leaving) + len(self._loading) + 1
        excess = 0 if limit == UNLIMITED else count - limit
        excess_bytes = 0
        if limit_bytes is not None:
            used = sum(entry.size_bytes for entry in self._entries())
            excess_bytes = used + sum(self._loading.values()) + size_bytes - limit_bytes
        if excess <= 0 and excess_bytes <= 0:
            return []
        victims = []
        evictable = (entry for entry in self._loaded.values() if entry.is_evictable)
        for entry in sorted(evictable, key=self._value):
            victims.append(entry)
            excess -= 1
            excess_bytes -= entry.size_bytes
            if excess <= 0 and excess_bytes <= 0:
                return victims
        return None

    def _value(self, entry: Entry[Model]) -> float:
        """The value of keeping the model: the lowest is evicted first."""
        record = entry.record
        if self.options.policy == "lru":
            return record.used_at_use
        size = 1 if self.options.max_bytes is None else max(1, entry.size_bytes)
        return entry.floor + self._history.frequency(record) * record.load_s / size

    def _evict(self, victims: list[Entry[Model]]) -> None:
        for entry in victims:
            self._floor = max(self._floor, self._value(entry))
            del self._loaded[entry.model_id]
            self._history.evicted(entry.model_id)
            self._stats.evictions += 1

    def _gone(self, entry: Entry[Model]) -> Entry[Model]:
        self._stats.unloads += 1
        return entry


class _Larger:
    """A simulated cache of ids with twice the room, to count the loads that it would save.

    Its loads take no time. Under a policy other than ``lru``, or with models of several sizes, it
    may load a model that the real cache has. Such a load is offset against the next one that it
    saves, so that the count is the true saving of more room.
    """

    def __init__(self, options: CacheOptions) -> None:
        limit, limit_bytes = options.max_num_models_per_replica, options.max_bytes
        doubled = replace(
            options,
            max_num_models_per_replica=limit if limit == UNLIMITED else 2 * limit,
            max_bytes=None if limit_bytes is None else 2 * limit_bytes,
        )
        self._cache: ModelCache[None] = ModelCache(doubled, is_compared=False)
        self._owed = 0

    def use(self, model_id: str, real: Entry[Model] | None) -> None:
        """Count a use of a model, which the real cache has loaded or not."""
        if self._cache.use(model_id) is None and real is not None:
            self._owed += 1
            self.loaded(real)

    def saves(self, model_id: str) -> bool:
        """Return whether this cache, on balance, does not need a load of the real one."""
        if not self._cache.is_loaded(model_id):
            return False
        if self._owed:
            self._owed -= 1
            return False
        return True

    def loaded(self, real: Entry[Model]) -> None:
        """Have a model that the real cache has, unless pinned ones leave it no room."""
        model_id, size_bytes, load_s = real.model_id, real.size_bytes, real.record.load_s
        self._cache.request(model_id, 0.0)
        if self._cache.start_loads():
            self._cache.loaded(model_id, None, size_bytes=size_bytes, load_s=load_s, now=0.0)
        self._cache.withdraw(model_id)

    def pin(self, model_id: str, *, pinned: bool) -> None:
        """Pin a model as the real cache does."""
        self._cache.pin(model_id, pinned=pinned)

    def forget(self, model_id: str) -> None:
        """Unload a model as the real cache does, which room has nothing to do with."""
        self._cache.unload(model_id)
