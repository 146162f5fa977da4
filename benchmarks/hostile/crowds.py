"""Crowds that rest, and what they cost newcomers: ``python -m benchmarks.hostile.crowds NAME``.

``descriptors``: more clients than the mesh may have files and sockets. ``proxy``: more than are
free for an address, behind a proxy that is trusted. Each has a mesh of its own. On its standard
output is one line of JSON; exit code 1 if a bar was missed, which ``problems`` names.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager

import pyserve
from benchmarks.hostile.mesh import attacked_mesh
from benchmarks.hostile.victim import Victim

# The usual soft limit of a shell as the hard one of the mesh, whose soft one is less.
FILES_MAX = 1024
_FILES_OF_SHELL = 512
# Each of the attackers may have so many itself.
_ATTACKERS = 2
_PROXY = _CROWD = "127.0.0.2"
# As long as all that is asked of the mesh takes; the attackers end when it has been.
_HELD_S = 120.0
_RATE = 50.0
_CROWD_S = 4.0
_NEWCOMERS = 10
# A health check has a few seconds; a machine that is busy besides takes some.
ANSWER_S_MAX = 2.0
REPLACED_S_MAX = 30.0

Problems = list[str]


def descriptors() -> dict[str, object]:
    """Crowd a mesh whose processes may open 1 024 files; return what was seen."""
    problems: Problems = []
    seen: dict[str, object] = {"problems": problems}
    # Processes that are started from here on inherit it.
    resource.setrlimit(resource.RLIMIT_NOFILE, (_FILES_OF_SHELL, FILES_MAX))
    with attacked_mesh() as address:
        resource.setrlimit(resource.RLIMIT_NOFILE, (FILES_MAX, FILES_MAX))
        for name in ("silent", "idle_http1", "idle_http2"):
            seen[name] = _crowded(name, address, problems)
        counts = pyserve.status().ingress.counts
        seen["counts"] = {name: counts[name] for name in ("connections_max", "displaced")}
        if not 0 < counts["connections_max"] < FILES_MAX:
            problems.append(f"connections_max is {counts['connections_max']}")
    return seen


def _crowded(name: str, address: str, problems: Problems) -> dict[str, object]:
    victim = Victim(_host_and_port(address))
    victim.ask()
    # From another address than that of the others: those that share it wait in a line.
    with _attackers(name, address, _ATTACKERS, "--source", _CROWD):
        seen: dict[str, object] = {
            "neighbour_s_max": _checked(
                problems, f"{name}: the neighbour", lambda: _neighbour_s(victim)
            ),
            "newcomer_s_max": _checked(
                problems, f"{name}: a newcomer", lambda: _newcomers_s(address)
            ),
        }
        replaced_s = _checked(
            problems, f"{name}: the replacement", _replace, seconds_max=REPLACED_S_MAX
        )
        seen["replaced_s"] = replaced_s
        seen["newcomer_after_s_max"] = _checked(
            problems, f"{name}: a newcomer after that", lambda: _newcomers_s(address)
        )
        seen["connections"] = pyserve.status().ingress.counts["connections"]
    victim.close()
    return seen


def proxy() -> dict[str, object]:
    """Crowd a mesh from the address of a trusted proxy; return what was seen."""
    problems: Problems = []
    os.environ["PYSERVE_TRUSTED_PROXIES"] = _PROXY
    with (
        attacked_mesh() as address,
        _attackers("idle_http2_again", address, 1, "--source", _PROXY),
    ):
        victim = Victim(_host_and_port(address))
        seen: dict[str, object] = {
            "neighbour_s_max": _checked(problems, "the neighbour", lambda: _neighbour_s(victim)),
            "newcomer_s_max": _checked(
                problems, "a newcomer by the proxy", lambda: _newcomers_s(address, _PROXY)
            ),
            "delayed": pyserve.status().ingress.counts["delayed_connections"],
            "problems": problems,
        }
        victim.close()
    return seen


CROWDS: Mapping[str, Callable[[], dict[str, object]]] = {"descriptors": descriptors, "proxy": proxy}


def _checked(
    problems: Problems,
    what: str,
    measure: Callable[[], float],
    *,
    seconds_max: float = ANSWER_S_MAX,
) -> float | None:
    try:
        found_s = round(measure(), 3)
    except (OSError, AssertionError, pyserve.PyserveError) as error:
        problems.append(f"{what}: {type(error).__name__}: {error}")
        return None
    if found_s > seconds_max:
        problems.append(f"{what}: {found_s} s, at most {seconds_max:g}")
    return found_s


def _neighbour_s(victim: Victim) -> float:
    """Ask all the time while the crowd comes; return the longest answer."""
    return max(victim.ask_steadily(_RATE, _CROWD_S))


def _newcomers_s(address: str, source: str = "127.0.0.1") -> float:
    """Return the longest that a health check takes, from its connection to its answer."""
    return max(_health_s(address, source) for _ in range(_NEWCOMERS))


def _health_s(address: str, source: str) -> float:
    begun_s = time.perf_counter()
    with socket.create_connection(
        _host_and_port(address), timeout=20, source_address=(source, 0)
    ) as connection:
        connection.sendall(b"GET /-/healthz HTTP/1.1\r\nhost: test\r\nconnection: close\r\n\r\n")
        received = b""
        while piece := connection.recv(4096):
            received += piece
    assert received.startswith(b"HTTP/1.1 200 "), received
    return time.perf_counter() - begun_s


def _replace() -> float:
    """Kill the replica of ``/plain``; return how long it takes until another one serves."""
    killed = _replica()
    assert killed is not None, "no replica runs"
    os.kill(killed, signal.SIGKILL)
    begun_s = time.perf_counter()
    while time.perf_counter() < begun_s + REPLACED_S_MAX:
        if _replica() not in (killed, None):
            return time.perf_counter() - begun_s
        time.sleep(0.05)
    raise AssertionError(f"no other replica within {REPLACED_S_MAX:g} s")


def _replica() -> int | None:
    (deployment,) = pyserve.status().applications["plain"].deployments.values()
    running = [each.pid for each in deployment.replicas if each.state == "RUNNING"]
    return running[0] if running else None


@contextmanager
def _attackers(name: str, address: str, count: int, *options: str) -> Iterator[None]:
    """Hold a crowd until the block ends."""
    command = [sys.executable, "-m", "benchmarks.hostile.attacker", name, address, str(_HELD_S)]
    with ExitStack() as stack:
        for _ in range(count):
            attacker = subprocess.Popen([*command, *options], stdout=subprocess.PIPE, text=True)
            stack.callback(_end, attacker)
            assert attacker.stdout is not None
            assert attacker.stdout.readline() == "ready\n"
        yield


def _end(attacker: subprocess.Popen[str]) -> None:
    attacker.kill()
    attacker.communicate()


def _host_and_port(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    return host, int(port)


def main(arguments: Sequence[str] | None = None) -> int:
    """Crowd a mesh as the command line says, and write what was seen."""
    parser = argparse.ArgumentParser(description="a crowd before a mesh of its own")
    parser.add_argument("name", choices=CROWDS)
    seen = CROWDS[parser.parse_args(arguments).name]()
    print(json.dumps(seen))
    return 1 if seen["problems"] else 0


if __name__ == "__main__":
    sys.exit(main())
