"""CPU time and memory of a tree of processes."""

import os
import subprocess
import sys

import pytest

from benchmarks.cpu import ProcessReading, TreeMeter, parse_stat, read_table, tree_of
from tests.support.waiting import wait_until

TICKS_PER_S = os.sysconf("SC_CLK_TCK")


def reading(pid, parent, *, start=1, cpu=0, rss=0):
    return ProcessReading(pid, parent, start, cpu, rss)


def table(*readings):
    return {each.pid: each for each in readings}


def test_a_stat_line_is_read_whatever_the_name_holds():
    behind_the_name = "S 7 1 1 0 -1 4194560 9 0 0 0 250 50 0 0 20 0 1 0 12345 4096000 100 1 2"
    expected = ProcessReading(42, 7, 12345, 300, 100 * os.sysconf("SC_PAGE_SIZE"))
    assert expected == parse_stat(f"42 (a) (b c) {behind_the_name}")


def test_a_tree_is_the_root_and_everything_below_it():
    processes = table(reading(1, 0), reading(2, 1), reading(3, 2), reading(4, 1), reading(5, 9))
    assert {2, 3} == {each.pid for each in tree_of(processes, 2)}
    assert {1, 2, 3, 4} == {each.pid for each in tree_of(processes, 1)}
    assert [] == tree_of(processes, 77)


def test_processes_that_come_and_go_keep_counting():
    tables = [
        table(reading(1, 0, cpu=10, rss=5), reading(2, 1, cpu=20, rss=7)),
        table(reading(1, 0, cpu=15, rss=6)),
        table(reading(1, 0, cpu=15, rss=6), reading(2, 1, start=9, cpu=3, rss=1)),
    ]
    moments = iter(tables)
    meter = TreeMeter(1, read=lambda: next(moments))
    assert [30 / TICKS_PER_S, 35 / TICKS_PER_S, 38 / TICKS_PER_S] == [meter.cpu_s() for _ in tables]
    assert (7, 2) == (meter.rss_bytes, meter.processes)


def test_a_process_below_two_roots_counts_once_and_one_below_none_not():
    """The ingress is the parent of the controller; replicas are not children of either."""
    processes = table(
        reading(1, 0, cpu=1), reading(2, 1, cpu=2), reading(3, 0, cpu=4), reading(4, 0, cpu=8)
    )
    meter = TreeMeter(2, 1, 3, read=lambda: processes)
    assert 7 / TICKS_PER_S == meter.cpu_s()
    assert 3 == meter.processes


def test_this_process_is_in_the_table_with_its_parent():
    own = read_table()[os.getpid()]
    assert os.getppid() == own.parent
    assert own.rss_bytes > 1_000_000


@pytest.mark.slow
def test_the_work_of_a_grandchild_is_counted():
    # The kernel tells user and system time in whole ticks: up to two less than was burned.
    burn = "import time\nwhile time.process_time() < 0.33: pass\nprint(flush=True); input()"
    spawn = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {burn!r}])"
    with subprocess.Popen(
        [sys.executable, "-c", spawn], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        assert child.stdin
        assert child.stdout
        try:
            child.stdout.readline()
            meter = TreeMeter(child.pid)
            wait_until(lambda: meter.cpu_s() >= 0.3)
            assert 2 == meter.processes
        finally:
            child.stdin.close()
            child.wait(timeout=10)
