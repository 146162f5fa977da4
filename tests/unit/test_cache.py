"""What `pyserve.cache` passes on, and when."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field

import pytest

from pyserve import _router, cache
from pyserve.cache import Book, Key
from pyserve.errors import KindError, OptionError


@dataclass
class Reports:
    """Takes what a server would report."""

    keys_max: int = 0
    has: dict[Key, Key | None] = field(default_factory=dict)

    def set_cache_keys_max(self, keys_max: int) -> None:
        self.keys_max = keys_max

    def store_cache(self, keys: list[Key], parent: Key | None = None) -> None:
        for key in keys:
            self.has[key] = parent
            parent = None if parent is None else key

    def remove_cache(self, keys: list[Key]) -> None:
        for key in keys:
            self.has.pop(key, None)

    def clear_cache(self) -> None:
        self.has.clear()


def test_what_is_stored_before_the_server_starts_is_reported_by_it() -> None:
    book, reports = Book(), Reports()
    book.store(["a", "b"], None)
    book.store([1, 2], b"root")
    book.remove(["a", "unknown"])
    book.limit(7)
    book.report_to(reports)
    assert ({"b": None, 1: b"root", 2: 1}, 7) == (reports.has, reports.keys_max)
    book.store(["c"], None)
    book.remove([1])
    assert {"b": None, 2: 1, "c": None} == reports.has
    book.clear()
    assert {} == reports.has


def test_nothing_is_kept_beyond_the_bound_where_no_server_starts() -> None:
    book, reports = Book(), Reports()
    book.limit(3)
    for number in range(100):
        book.store([number], None)
    book.report_to(reports)
    assert {97: None, 98: None, 99: None} == reports.has


def test_a_clear_before_the_server_starts_leaves_nothing() -> None:
    book, reports = Book(), Reports()
    book.store(["a"], None)
    book.clear()
    book.report_to(reports)
    assert {} == reports.has


def test_any_thread_may_report() -> None:
    book, reports = Book(), Reports()
    book.report_to(reports)
    threads = [threading.Thread(target=book.store, args=([n], None)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(range(8)) == set(reports.has)


@pytest.mark.parametrize("keys", ["abc", b"abc", [True], [1.5], [None], [("a",)]])
def test_what_is_no_list_of_keys_is_refused(keys: object) -> None:
    for function in (cache.stored, cache.removed):
        with pytest.raises(KindError, match=f"cache.{function.__name__}: "):
            function(keys)  # type: ignore[arg-type]  # as users may do
    with pytest.raises(KindError, match="stored: parent"):
        cache.stored([], parent=True)


@pytest.mark.parametrize("max_keys", [0, -1, 1.5, True, "many"])
def test_a_bound_that_is_none_is_refused(max_keys: object) -> None:
    with pytest.raises(OptionError, match="use an integer from 1 on"):
        cache.set_max_keys(max_keys)  # type: ignore[arg-type]  # as users may do


@pytest.mark.parametrize("key", [1.5, None, True])
def test_the_native_half_refuses_what_is_no_key(key: object) -> None:
    with pytest.raises(TypeError, match="use bytes, str or int"):
        _router.CallOptions(cache_keys=[key])  # type: ignore[list-item]  # as a defect would


def test_a_call_names_at_most_256_entries() -> None:
    _router.CallOptions(cache_keys=list(range(256)))
    with pytest.raises(ValueError, match="257 keys; give at most 256"):
        _router.CallOptions(cache_keys=list(range(257)))
