"""How much memory two processes share for large bodies, and what happens without it."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import httpx
import pytest

import pyserve
from tests.support.mesh import running_mesh
from tests.support.session import attached
from tests.support.waiting import wait_until

pytestmark = pytest.mark.slow

_BODY = os.urandom(1 << 20)
_MARKS_BYTES = 4096
_AT_ONCE = 8
_TIMEOUT_S = 120.0


def _arenas(pid: int) -> dict[str, int]:
    """Return the sizes of the arenas that a process has mapped, by their inodes."""
    maps = Path(f"/proc/{pid}/maps").read_text()
    places = re.findall(r"^(\w+)-(\w+) .* (\d+) +/memfd:pyserve-arena", maps, re.MULTILINE)
    return {inode: int(end, 16) - int(start, 16) for start, end, inode in places}


def _open_arenas(pid: int) -> int:
    """Return how many descriptors of arenas a process has."""
    found = 0
    for descriptor in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):  # It is closed already.
            found += "pyserve-arena" in str(descriptor.readlink())
    return found


def _replica_pid(deployment: str) -> int:
    (replica,) = pyserve.status().applications["default"].deployments[deployment].replicas
    return int(replica.pid)


def _ingress_pid() -> int:
    (ingress,) = pyserve.status().ingresses
    return int(ingress.pid)


@pytest.mark.parametrize(("mebibytes", "mapped"), [("0", set()), ("2", {(2 << 20) + _MARKS_BYTES})])
def test_bodies_share_as_much_memory_as_the_environment_says(mebibytes: str, mapped: set[int]):
    environment = {"PYSERVE_SHARED_MEMORY_MB": mebibytes}
    with (
        running_mesh("tests.mesh.shared_memory.shared:app", environment=environment) as mesh,
        attached(mesh.home),
    ):
        answer = httpx.post(f"http://{mesh.address}/", content=_BODY, timeout=_TIMEOUT_S)
        found = [set(_arenas(pid).values()) for pid in (_replica_pid("Echo"), _ingress_pid())]

    assert _BODY == answer.content
    assert [mapped, mapped] == found


def test_a_caller_that_is_killed_amid_bodies_leaves_nothing_at_the_other_side():
    with (
        running_mesh("tests.mesh.shared_memory.shared:relay") as mesh,
        attached(mesh.home),
        ThreadPoolExecutor(_AT_ONCE) as pool,
    ):
        url, caller, callee = f"http://{mesh.address}/", _replica_pid("Relay"), _replica_pid("Echo")

        def ask() -> None:
            answer = httpx.post(url, content=_BODY, timeout=_TIMEOUT_S)
            assert answer.status_code != 200 or _BODY == answer.content

        def ask_until_killed() -> None:
            while True:
                try:
                    ask()
                except httpx.RemoteProtocolError:  # Its answer had begun.
                    return
                if not Path(f"/proc/{caller}").exists():
                    return

        ask()
        assert _arenas(callee)
        asking = [pool.submit(ask_until_killed) for _ in range(_AT_ONCE)]
        wait_until(lambda: any(each.running() for each in asking), what="bodies are on their way")
        os.kill(caller, signal.SIGKILL)
        for each in asking:
            each.result(_TIMEOUT_S)
        wait_until(lambda: _replica_pid("Relay") != caller, _TIMEOUT_S, "another caller is there")
        ask()
        pids = (_replica_pid("Relay"), callee, _ingress_pid())
        wait_until(lambda: _arenas(callee).keys() <= _arenas(pids[0]).keys())
        wait_until(lambda: _arenas(pids[0]).keys() <= (_arenas(callee) | _arenas(pids[2])).keys())
        wait_until(lambda: not any(map(_open_arenas, pids)))


def test_bodies_arrive_where_memory_cannot_be_shared():
    command = [sys.executable, "-m", "tests.mesh.shared_memory.without_memfd"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT_S, check=True)

    assert f"{len(_BODY)}\n" == done.stdout
    assert 1 <= done.stderr.count("large bodies go over sockets")
