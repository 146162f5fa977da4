"""Hosts in network namespaces, whose zones are some milliseconds apart.

Each zone is a bridge; all bridges are in a namespace of their own, so that nothing of this
machine's network is touched. Between two zones ``delay.py`` carries the frames.
"""

from __future__ import annotations

import contextlib
import os
import select
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.machine import ROOT

_IP_TIMEOUT_S = 20.0
_DELAY_START_TIMEOUT_S = 20.0
# Private (RFC 1918), and in namespaces that nothing else is connected to.
_ADDRESSES = "10.77.0"
_WIDTH = 24


@dataclass(frozen=True)
class Host:
    """A machine.

    Attributes:
        name: Unique in its network.
        zone: Where it is.
        address: Of its own, in a network that all hosts share.
        namespace: Of the kernel's.
    """

    name: str
    zone: str
    address: str
    namespace: str

    def popen(
        self, command: Sequence[str], environment: Mapping[str, str], log: Path
    ) -> subprocess.Popen[bytes]:
        """Start a command on this host; its output goes to ``log``."""
        with log.open("ab") as output:
            return subprocess.Popen(
                self.command(command),
                cwd=ROOT,
                env=dict(environment),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )

    def command(self, command: Sequence[str]) -> list[str]:
        """Return what runs a command on this host."""
        return ["ip", "netns", "exec", self.namespace, *command]

    def lose(self, address: str) -> None:
        """Let everything that this host sends to an address vanish."""
        _ip("-n", self.namespace, "route", "add", "blackhole", f"{address}/32")

    def find(self, address: str) -> None:
        """Undo ``lose``."""
        _ip("-n", self.namespace, "route", "del", "blackhole", f"{address}/32")


def missing() -> str | None:
    """Return why there can be no network here; ``None``: there can be one."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    if not Path("/dev/net/tun").exists():
        return "there is no /dev/net/tun"
    try:
        with _namespace(f"pyserve-{os.getpid()}-probe"):
            return None
    except (OSError, subprocess.SubprocessError) as error:
        return f"`ip netns add` failed: {error}"


@contextlib.contextmanager
def network(zones: Mapping[str, Sequence[str]], one_way_ms: float) -> Iterator[list[Host]]:
    """Have hosts until the end of the context.

    Args:
        zones: Names of hosts by the names of one zone or two.
        one_way_ms: What a frame takes from zone to zone, beside the kernel's own time.

    Raises:
        RuntimeError: Frames are not carried.
        CalledProcessError, OSError: There can be no namespaces.
    """
    unique = f"pyserve-{os.getpid()}"
    with contextlib.ExitStack() as stack:
        switch = stack.enter_context(_namespace(f"{unique}-switch"))
        hosts: list[Host] = []
        for zone, names in zones.items():
            _ip("-n", switch, "link", "add", zone, "type", "bridge")
            _ip("-n", switch, "link", "set", zone, "up")
            for name in names:
                namespace = stack.enter_context(_namespace(f"{unique}-{name}"))
                host = Host(name, zone, f"{_ADDRESSES}.{len(hosts) + 1}", namespace)
                _connect(host, switch)
                hosts.append(host)
        if len(zones) > 1:
            stack.enter_context(_delaying(switch, list(zones), one_way_ms))
        yield hosts


def _connect(host: Host, switch: str) -> None:
    inside = ("-n", host.namespace)
    plug = f"to-{host.name}"
    _ip(*inside, "link", "add", "eth0", "type", "veth", "peer", "name", plug, "netns", switch)
    _ip("-n", switch, "link", "set", plug, "master", host.zone, "up")
    _ip(*inside, "address", "add", f"{host.address}/{_WIDTH}", "dev", "eth0")
    _ip(*inside, "link", "set", "eth0", "up")
    _ip(*inside, "link", "set", "lo", "up")


@contextlib.contextmanager
def _namespace(name: str) -> Iterator[str]:
    _ip("netns", "add", name)
    try:
        yield name
    finally:
        _ip("netns", "del", name)


@contextlib.contextmanager
def _delaying(switch: str, zones: Sequence[str], one_way_ms: float) -> Iterator[None]:
    taps = [f"tap-{zone}" for zone in zones]
    for tap, zone in zip(taps, zones, strict=True):
        _ip("-n", switch, "tuntap", "add", "dev", tap, "mode", "tap")
        _ip("-n", switch, "link", "set", tap, "master", zone, "up")
    program = [sys.executable, "-m", "benchmarks.zones.delay", *taps, str(one_way_ms)]
    process = subprocess.Popen(
        ["ip", "netns", "exec", switch, *program],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        ready, _, _ = select.select([process.stdout], [], [], _DELAY_START_TIMEOUT_S)
        if not ready or process.stdout.readline() != b"carries\n":
            raise RuntimeError(f"{' '.join(program)} carries nothing")
        yield
    finally:
        # It ends with its standard input.
        process.stdin.close()
        process.stdout.close()
        process.wait(_IP_TIMEOUT_S)


def _ip(*arguments: str) -> None:
    subprocess.run(
        ["ip", *arguments], check=True, capture_output=True, text=True, timeout=_IP_TIMEOUT_S
    )
