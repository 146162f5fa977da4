"""How many replicas a machine lets start at a time."""

import os
from pathlib import Path

import psutil
import pytest

from pyserve.launch.capacity import Stock, Stocks, memory_of, read_stocks, room, usable_processors

GIB = 2**30


@pytest.mark.parametrize(("processors", "starts"), [(1, 4), (2, 8), (64, 256)])
def test_starts_go_by_processors(processors, starts):
    found = room(processors, Stocks(Stock(GIB, 4 * GIB), Stock(500, 1000)), running=10)

    assert (starts, False) == (found.starts_max, found.is_short)
    assert f"{starts} start at a time, 4 for each processor" == found.why


def test_nothing_more_starts_while_memory_is_short():
    found = room(2, Stocks(memory=Stock(GIB // 4, 8 * GIB)), running=10)

    assert (0, True) == (found.starts_max, found.is_short)
    assert "256 MiB of 8192 MiB of memory are left" in found.why
    assert "lower num_replicas" in found.why


def test_one_may_start_where_others_have_taken_the_memory():
    assert 1 == room(2, Stocks(memory=Stock(0, GIB)), running=0).starts_max


def test_nothing_more_starts_while_descriptors_are_short():
    found = room(2, Stocks(descriptors=Stock(100, 1024)), running=10)

    assert (0, True) == (found.starts_max, found.is_short)
    assert "100 of the 1024 descriptors of the mesh's process are left" in found.why
    assert "ulimit -n" in found.why


def test_machine_of_unknown_stocks_is_not_short():
    assert not room(2, Stocks(), running=10).is_short


def test_pages_of_files_are_there_for_the_asking(tmp_path):
    (tmp_path / "memory.max").write_text("1000\n")
    (tmp_path / "memory.current").write_text("990\n")
    (tmp_path / "memory.stat").write_text("anon 90\ninactive_file 400\nactive_file 500\n")
    assert Stock(910, 1000) == memory_of(tmp_path)

    (tmp_path / "memory.max").write_text("max\n")
    assert memory_of(tmp_path) is None


def test_this_machine_is_known():
    stocks = read_stocks()

    assert stocks.memory is not None
    assert 0 < stocks.memory.left <= stocks.memory.whole <= psutil.virtual_memory().total
    assert stocks.descriptors is not None
    with Path("/dev/null").open():
        fewer = read_stocks().descriptors
    assert fewer is not None
    assert stocks.descriptors.left - 1 == fewer.left
    assert 1 <= usable_processors() <= len(os.sched_getaffinity(0))
