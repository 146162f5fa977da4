"""Limits, disks and ports of a machine, with faults that are staged."""

from __future__ import annotations

import os
import resource
import socket
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pyserve.config import read_settings
from pyserve.driver.doctor import check_descriptors, check_disks, check_free_ports
from pyserve.driver.doctor_mesh import Finding, State

MIB = 1 << 20


def settings(tmp_path: Path, **variables: str) -> Any:
    return read_settings({"PYSERVE_HOME": str(tmp_path), **variables})


@pytest.mark.parametrize(
    ("hard", "state"),
    [
        (256, State.WRONG),
        (4096, State.NOTICE),
        (1_000_000, State.OK),
        (resource.RLIM_INFINITY, State.OK),
    ],
)
def test_a_low_limit_of_descriptors_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hard: int, state: State
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (64, hard))
    (found,) = check_descriptors(settings(tmp_path))
    assert state is found.state
    if state is not State.OK:
        assert str(hard) in found.text
        assert "LimitNOFILE" in found.remedy


def test_a_limit_that_is_just_that_of_clients_is_told_with_what_the_mesh_adds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (64, 20_000))
    given = settings(tmp_path, PYSERVE_INGRESS_MAX_CONNECTIONS="20000")
    (found,) = check_descriptors(given)
    assert "may open 20000 files and sockets, fewer than the 21024 of 20000 clients" in found.text


def disk(free_bytes: int, files_left: int = 10**6) -> Any:
    return SimpleNamespace(
        f_bavail=free_bytes // 4096, f_frsize=4096, f_files=10**7, f_favail=files_left
    )


@pytest.mark.parametrize(
    ("found", "state", "word"),
    [
        (disk(10 * MIB), State.WRONG, "10 MiB"),
        (disk(300 * MIB), State.NOTICE, "300 MiB"),
        (disk(10_000 * MIB), State.OK, "10000 MiB"),
        (disk(10_000 * MIB, files_left=3), State.WRONG, "3 more files"),
    ],
)
def test_a_full_disk_is_found(tmp_path: Path, found: Any, state: State, word: str) -> None:
    first = next(check_disks(settings(tmp_path), lambda _: found))
    assert state is first.state
    assert word in first.text
    assert (state is State.OK) == (first.remedy == "")


def test_each_file_system_is_looked_at_once(tmp_path: Path) -> None:
    seen: list[Path] = []

    def look(path: Path) -> os.statvfs_result:
        seen.append(path)
        return os.statvfs(path)

    named = settings(tmp_path / "not" / "there", PYSERVE_LOG_DIR=str(tmp_path / "logs"))
    list(check_disks(named, look))
    assert 1 == len({path.stat().st_dev for path in seen if path.is_relative_to(tmp_path)})
    assert len(seen) == len({path.stat().st_dev for path in seen})


def states(found: list[Finding]) -> list[State]:
    return [each.state for each in found if each.subject == "ports"]


def test_a_port_that_another_program_has_is_found(tmp_path: Path) -> None:
    with socket.socket() as other, socket.socket() as metrics:
        for each in (other, metrics):
            each.bind(("127.0.0.1", 0))
            each.listen()
        port, shown = other.getsockname()[1], metrics.getsockname()[1]
        variables = {
            "PYSERVE_INGRESS_PORT": str(port),
            "PYSERVE_BIND_HOST": "127.0.0.1",
            "PYSERVE_METRICS_PORT": str(shown),
        }
        taken, also = check_free_ports(settings(tmp_path, **variables))
        assert State.WRONG is taken.state
        assert f"127.0.0.1:{port}" in taken.text
        assert "--address" in taken.remedy
        assert State.NOTICE is also.state
        assert str(shown) in also.text
    assert [State.OK] == states(list(check_free_ports(settings(tmp_path, **variables))))
