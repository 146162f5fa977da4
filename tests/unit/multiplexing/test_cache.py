"""The state machine that decides which models stay."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from pyserve.errors import OptionError
from pyserve.multiplexing.cache import CacheOptions, Entry, ModelCache
from pyserve.multiplexing.history import BACKOFF_S_MAX, RECORDS_MAX


def make(limit: int = 3, **options: object) -> ModelCache[str]:
    return ModelCache(CacheOptions(max_num_models_per_replica=limit, **options))  # type: ignore[arg-type]


def put(
    cache: ModelCache[str],
    model_id: str,
    *,
    size_bytes: int = 1,
    load_s: float = 1.0,
    now: float = 0.0,
) -> list[str]:
    """Load a model that nobody uses, and return what was evicted for it."""
    cache.use(model_id)
    assert cache.request(model_id, now) is None
    (start,) = cache.start_loads()
    loaded = cache.loaded(model_id, model_id, size_bytes=size_bytes, load_s=load_s, now=now)
    assert loaded.stays
    return [entry.model_id for entry in (*start.evicted, *loaded.evicted)]


def hold(cache: ModelCache[str], model_id: str) -> Entry[str]:
    entry = cache.use(model_id)
    assert entry is not None
    cache.hold(entry)
    return entry


def test_the_model_not_used_for_longest_goes_first():
    cache = make(2)
    put(cache, "a")
    put(cache, "b")
    cache.use("a")

    assert ["b"] == put(cache, "c")
    assert ["a", "c"] == cache.model_ids()


def test_without_a_limit_nothing_goes():
    cache = make(-1)

    assert [] == [gone for index in range(500) for gone in put(cache, str(index))]


def test_a_model_in_use_stays_and_the_next_load_waits():
    cache = make(1)
    put(cache, "a")
    entry = hold(cache, "a")
    cache.request("b", 0.0)

    assert [] == cache.start_loads()
    assert cache.is_waiting("b")
    cache.release(entry)
    (start,) = cache.start_loads()
    assert ("b", ["a"]) == (start.model_id, [gone.model_id for gone in start.evicted])


def test_a_pinned_model_stays_until_it_is_unpinned():
    cache = make(2)
    put(cache, "a")
    cache.pin("a", pinned=True)
    put(cache, "b")
    cache.use("b")

    assert ["b"] == put(cache, "c")
    cache.pin("a", pinned=False)
    assert ["a"] == put(cache, "d")


def test_loads_of_different_models_run_together_as_far_as_there_is_room():
    cache = make(2)
    for model_id in "abc":
        cache.request(model_id, 0.0)

    assert ["a", "b"] == [start.model_id for start in cache.start_loads()]
    cache.failed("a", "no", 0.0)
    assert ["c"] == [start.model_id for start in cache.start_loads()]


def test_a_load_is_started_once():
    cache = make()
    cache.request("a", 0.0)
    cache.request("a", 0.0)
    assert 1 == len(cache.start_loads())
    cache.request("a", 0.0)
    assert [] == cache.start_loads()


def test_bytes_are_a_limit_of_their_own():
    cache = make(-1, max_bytes=100)
    put(cache, "a", size_bytes=40)
    put(cache, "b", size_bytes=40)

    assert ["a"] == put(cache, "c", size_bytes=60)
    assert 100 == cache.stats().bytes_used


def test_the_first_load_has_the_budget_for_itself_because_its_size_is_unknown():
    cache = make(-1, max_bytes=100)
    cache.request("a", 0.0)
    cache.request("b", 0.0)

    assert ["a"] == [start.model_id for start in cache.start_loads()]
    cache.loaded("a", "a", size_bytes=30, load_s=1.0, now=1.0)
    assert ["b"] == [start.model_id for start in cache.start_loads()]


def test_a_model_larger_than_the_budget_fails_and_says_both_sizes():
    cache = make(-1, max_bytes=100)
    cache.request("a", 0.0)
    cache.start_loads()
    loaded = cache.loaded("a", "a", size_bytes=101, load_s=1.0, now=0.0)

    assert not loaded.stays
    assert loaded.failure is not None
    assert "it has 101 bytes and max_bytes is 100" == loaded.failure.cause
    assert [] == cache.model_ids()


def test_a_model_that_turned_out_too_large_beside_what_is_in_use_waits_again():
    cache = make(-1, max_bytes=100)
    put(cache, "a", size_bytes=50)
    entry = hold(cache, "a")
    cache.request("b", 0.0)
    cache.start_loads()

    assert not cache.loaded("b", "b", size_bytes=60, load_s=1.0, now=0.0).stays
    assert [] == cache.start_loads()
    cache.release(entry)
    (start,) = cache.start_loads()
    assert ["a"] == [gone.model_id for gone in start.evicted]
    assert cache.loaded("b", "b", size_bytes=60, load_s=1.0, now=0.0).stays
    assert (2, 1) == (cache.stats().loads, cache.stats().loads_dropped)


def test_gdsf_keeps_what_loads_slowly():
    cache = make(2, policy="gdsf")
    put(cache, "slow", load_s=10.0)
    put(cache, "quick", load_s=0.1)

    assert ["quick"] == put(cache, "other")


def test_gdsf_keeps_what_is_small():
    cache = make(-1, policy="gdsf", max_bytes=100)
    put(cache, "small", size_bytes=20)
    put(cache, "large", size_bytes=60)
    cache.use("large")

    assert ["large"] == put(cache, "other", size_bytes=60)


@pytest.mark.parity("S-35")
def test_gdsf_is_not_flushed_by_a_scan():
    cache = make(3, policy="gdsf")
    for model_id in "ab":
        put(cache, model_id)
        for _ in range(20):
            cache.use(model_id)
    for index in range(10):
        put(cache, f"scan-{index}")

    assert {"a", "b"} <= set(cache.model_ids())


def test_gdsf_lets_go_what_was_popular_long_ago():
    """The floor rises with each eviction, so no past is worth a place for ever."""
    cache = make(2, policy="gdsf")
    put(cache, "old")
    for _ in range(50):
        cache.use("old")
    for turn in range(200):
        for model_id in ("x", "y"):
            if cache.use(model_id) is None:
                put(cache, model_id, now=float(turn))

    assert {"x", "y"} == set(cache.model_ids())


def test_a_failed_load_is_tried_again_after_a_pause_that_doubles():
    cache = make()
    now, pauses = 0.0, []
    for _ in range(9):
        assert cache.request("a", now) is None
        cache.start_loads()
        failure = cache.failed("a", "ValueError: no", now)
        assert failure == cache.request("a", failure.retry_at - 0.001)
        pauses.append(failure.retry_at - now)
        now = failure.retry_at

    assert [1, 2, 4, 8, 16, 32, BACKOFF_S_MAX, BACKOFF_S_MAX, BACKOFF_S_MAX] == pauses
    put(cache, "a", now=now)
    cache.unload("a")
    cache.request("a", now)
    cache.start_loads()
    assert now + 1 == cache.failed("a", "again", now).retry_at


def test_unloading_waits_for_the_last_holder_and_newcomers_wait_for_a_new_load():
    cache = make(3)
    put(cache, "a")
    first, second = hold(cache, "a"), hold(cache, "a")

    assert cache.unload("a") is None
    assert [] == cache.model_ids()
    assert cache.use("a") is None
    cache.request("a", 0.0)
    assert [] == cache.start_loads()
    assert cache.release(first) is None
    assert second is cache.release(second)
    assert ["a"] == [start.model_id for start in cache.start_loads()]


def test_loads_that_twice_the_room_would_save_are_counted():
    """The sign of a cache that thrashes: two models take turns in the place of one."""
    cache = make(1)
    for _ in range(3):
        put(cache, "a")
        put(cache, "b")
    assert 4 == cache.stats().reloads


def test_models_that_twice_the_room_would_not_keep_are_no_reloads():
    """However soon they come back: three models by turns need three places, not two."""
    cache = make(1)
    for _ in range(3):
        for model_id in "abc":
            put(cache, model_id)
    assert 0 == cache.stats().reloads


def test_what_was_unloaded_on_demand_or_failed_to_load_is_no_reload():
    cache = make(1)
    put(cache, "a")
    cache.unload("a")
    put(cache, "a")
    put(cache, "b")
    for now in (0.0, 60.0):
        cache.use("a")
        cache.request("a", now)
        cache.start_loads()
        cache.failed("a", "broken", now)
    assert 1 == cache.stats().reloads, "the first load that failed was to be saved, no other"


def test_a_pinned_model_has_its_place_in_twice_the_room_too():
    """Of four places it leaves three, in which four models by turns find nothing again."""
    cache = make(2)
    put(cache, "a")
    cache.pin("a", pinned=True)
    for model_id in "bcdebcde":
        put(cache, model_id)
    assert 0 == cache.stats().reloads


def test_a_load_that_only_more_room_needs_is_set_off_against_one_that_it_saves():
    """Under ``gdsf`` four places may lack what two have: here both load seven models in all."""
    load_s = {"a": 4.0, "b": 4.0, "c": 8.0, "d": 2.0, "e": 4.0, "g": 4.0, "h": 1.0}
    caches = make(2, policy="gdsf"), make(4, policy="gdsf")
    for cache in caches:
        for model_id in "geceahdae":
            if model_id in cache.model_ids():
                cache.use(model_id)
            else:
                put(cache, model_id, load_s=load_s[model_id])
    assert [7, 7] == [cache.stats().loads for cache in caches]
    assert 0 == caches[0].stats().reloads


def test_the_memory_of_ids_that_clients_invent_is_bounded():
    cache = make(1)
    put(cache, "kept", load_s=7.0)
    cache.pin("kept", pinned=True)
    for index in range(RECORDS_MAX + 10):
        cache.use(f"invented-{index}")

    assert RECORDS_MAX == len(cache._history._records)
    entry = cache.use("kept")
    assert entry is not None
    assert 7.0 == entry.record.load_s


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"max_num_models_per_replica": 0}, "max_num_models_per_replica: 0 is not allowed"),
        ({"max_num_models_per_replica": -2}, "or -1 for no limit"),
        ({"max_num_models_per_replica": True}, "True is not allowed"),
        ({"max_bytes": 0}, "max_bytes: 0 is not allowed"),
        ({"max_bytes": 1.5}, "max_bytes: 1.5 is not allowed"),
        ({"policy": "lfu"}, "write 'lru' or 'gdsf'"),
    ],
)
def test_options_out_of_range_are_refused(options: dict[str, object], text: str):
    with pytest.raises(OptionError) as caught:
        CacheOptions(**options)  # type: ignore[arg-type]
    assert text in str(caught.value)


IDS = st.sampled_from("abcdefgh")


class CacheHistories(RuleBasedStateMachine):
    """Any order of uses, loads, failures, holds, pins and unloads.

    The sizes of models change between loads; the cache learns each when it is loaded.
    """

    limit = 3
    max_bytes: int | None = None
    policy = "lru"

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.cache = make(self.limit, max_bytes=self.max_bytes, policy=self.policy)
        self.loading: list[str] = []
        self.held: list[Entry[str]] = []
        self.pinned: set[str] = set()
        self.resident: dict[str, Entry[str]] = {}
        self.started = self.gone = self.ended = 0

    def check_evicted(self, entries: list[Entry[str]]) -> None:
        for entry in entries:
            assert entry not in self.held, "a model in use was evicted"
            assert entry.model_id not in self.pinned, "a pinned model was evicted"
            assert entry is self.resident.pop(entry.model_id)
            self.gone += 1

    @rule(model_id=IDS)
    def ask(self, model_id: str) -> None:
        entry = self.cache.use(model_id)
        assert (model_id in self.resident) == (entry is not None)
        if entry is not None:
            self.cache.hold(entry)
            self.held.append(entry)
        else:
            self.cache.request(model_id, self.now)

    @rule()
    def start(self) -> None:
        for start in self.cache.start_loads():
            assert start.model_id not in self.loading
            self.started += 1
            self.loading.append(start.model_id)
            self.check_evicted(start.evicted)

    @precondition(lambda self: self.loading)
    @rule(data=st.data(), size=st.integers(0, 70), load_s=st.floats(0.01, 9.0))
    def finish(self, data: st.DataObject, size: int, load_s: float) -> None:
        model_id = self._take(data)
        loaded = self.cache.loaded(model_id, model_id, size_bytes=size, load_s=load_s, now=self.now)
        self.check_evicted(loaded.evicted)
        if loaded.stays:
            self.resident[model_id] = loaded.entry

    @precondition(lambda self: self.loading)
    @rule(data=st.data())
    def fail(self, data: st.DataObject) -> None:
        self.cache.failed(self._take(data), "no", self.now)

    @precondition(lambda self: self.loading)
    @rule(data=st.data())
    def give_up(self, data: st.DataObject) -> None:
        self.cache.cancelled(self._take(data))

    def _take(self, data: st.DataObject) -> str:
        model_id = data.draw(st.sampled_from(self.loading))
        self.loading.remove(model_id)
        self.ended += 1
        return model_id

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        entry = data.draw(st.sampled_from(self.held))
        self.held.remove(entry)
        if self.cache.release(entry) is not None:
            self.gone += 1
            assert entry not in self.held

    @rule(model_id=IDS, pinned=st.booleans())
    def pin(self, model_id: str, pinned: bool) -> None:
        self.cache.pin(model_id, pinned=pinned)
        if pinned and model_id in self.resident:
            self.pinned.add(model_id)
        elif not pinned:
            self.pinned.discard(model_id)

    @rule(model_id=IDS)
    def unload(self, model_id: str) -> None:
        entry = self.cache.unload(model_id)
        self.resident.pop(model_id, None)
        self.pinned.discard(model_id)
        self.gone += entry is not None
        assert entry not in self.held or entry is None

    @rule(wait_s=st.floats(0.0, 100.0))
    def wait(self, wait_s: float) -> None:
        self.now += wait_s

    @invariant()
    def the_budget_holds(self) -> None:
        stats = self.cache.stats()
        assert self.limit == -1 or stats.models + stats.loading <= self.limit
        assert self.max_bytes is None or stats.bytes_used <= self.max_bytes

    @invariant()
    def every_load_is_counted_once(self) -> None:
        stats = self.cache.stats()
        ends = stats.loads + stats.loads_failed + stats.loads_cancelled + stats.loads_dropped
        assert self.ended == ends
        assert self.started == ends + stats.loading
        assert stats.loads == stats.models + self.gone
        assert self.gone == stats.evictions + stats.unloads

    @invariant()
    def the_directory_is_the_truth(self) -> None:
        assert {*self.resident, *self.loading} == set(self.cache.model_ids())


class CacheHistoriesByBytes(CacheHistories):
    limit = -1
    max_bytes = 60
    policy = "gdsf"


class CacheHistoriesByBoth(CacheHistories):
    limit = 4
    max_bytes = 100
    policy = "gdsf"


TestCacheHistories = CacheHistories.TestCase
TestCacheHistoriesByBytes = CacheHistoriesByBytes.TestCase
TestCacheHistoriesByBoth = CacheHistoriesByBoth.TestCase


@given(st.lists(st.sampled_from("abcdef"), max_size=200), st.integers(1, 4))
def test_lru_is_the_textbook_list(uses: list[str], limit: int):
    """Against a model that any reader can check: a list, most recent last."""
    cache, expected = make(limit), list[str]()
    for model_id in uses:
        if cache.use(model_id) is None:
            cache.request(model_id, 0.0)
            cache.start_loads()
            cache.loaded(model_id, model_id, size_bytes=1, load_s=1.0, now=0.0)
        expected = [*(other for other in expected if other != model_id), model_id][-limit:]
        assert set(expected) == set(cache.model_ids())
