"""Whom the kernel has killed is known from how often it has killed."""

from pathlib import Path

import pytest

from pyserve.launch import capacity
from pyserve.launch.capacity import KernelKills, count_kernel_kills


def test_as_many_are_told_as_it_has_killed() -> None:
    count = 3
    kills = KernelKills(lambda: count)
    assert not kills.has_killed()
    count += 2
    assert [True, True, False] == [kills.has_killed() for _ in range(3)]


def test_those_that_nobody_asks_about_are_forgotten() -> None:
    count = 0
    kills = KernelKills(lambda: count)
    count += 1
    kills.forget()
    assert not kills.has_killed()


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"memory.events": "low 0\noom 4\noom_kill 3\n", "vmstat": "oom_kill 9\n"}, 3),
        ({"vmstat": "pgfault 1\noom_kill 9\n"}, 9),
        ({}, 0),
    ],
)
def test_the_cgroup_knows_best(
    files: dict[str, str], expected: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    monkeypatch.setattr(capacity, "own_cgroups", lambda: iter([tmp_path]))
    assert expected == count_kernel_kills(tmp_path / "vmstat")
