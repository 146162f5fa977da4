"""Identifies replicas of this machine that nobody watches, and ends them after their calls."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Self

from pyserve.config.control import KILL_MARGIN_S, SHUTDOWN_GRACE_S
from pyserve.launch.ledger import Grant

# Their deployments' options are not known here; the replicas know them, and end by themselves.
STRAY_TIMEOUT_S = SHUTDOWN_GRACE_S + KILL_MARGIN_S
_KILLED_TIMEOUT_S = 5.0


def members(run_dir: Path) -> list[tuple[int, list[str]]]:
    """Return the processes of replicas of a run directory, and what they forked, by arguments."""
    return [
        (pid, arguments)
        for pid, arguments in commands()
        if value_of("--lasting", arguments) == str(run_dir)
    ]


def has_members(run_dir: Path) -> bool:
    """Say whether processes of replicas of a run directory live."""
    return bool(members(run_dir))


def _groups_of(pids: Iterable[int]) -> set[int]:
    """Return the process groups of those that still run."""
    found = set()
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            found.add(os.getpgid(pid))
    return found


async def end_members(run_dir: Path, hurry: asyncio.Event) -> int:
    """Drain every replica of a run directory, and return how many there were.

    Args:
        run_dir: their launcher's run directory; no others may be started there meanwhile.
        hurry: when this is set they are killed at once.
    """
    groups = _groups_of(pid for pid, _ in members(run_dir))
    await asyncio.gather(*(drain(group, STRAY_TIMEOUT_S, hurry) for group in groups))
    return len(groups)


async def drain(group: int, timeout_s: float, hurry: asyncio.Event | None = None) -> None:
    """Have the leader of a process group finish its calls; then end the rest of the group.

    When this is cancelled the group goes on.

    Args:
        group: whose leader takes SIGTERM as a request to drain.
        timeout_s: seconds until the group is killed.
        hurry: when this is set it is killed at once.
    """
    try:
        leader = identify(group, Grant())
        pidfd = os.pidfd_open(group)
    except OSError:  # The leader has ended, and only processes that it has started are left.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(group, signal.SIGKILL)
        return
    try:
        if leader.is_alive():
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(pidfd, signal.SIGTERM)
            await _ended(pidfd, timeout_s, hurry or asyncio.Event())
        end_group(leader)
        await _ended(pidfd, _KILLED_TIMEOUT_S, asyncio.Event())
    finally:
        os.close(pidfd)


async def _ended(pidfd: int, timeout_s: float, hurry: asyncio.Event) -> None:
    """Wait until a process has ended, for as long as that may take."""
    loop = asyncio.get_running_loop()
    end: asyncio.Future[None] = loop.create_future()

    def on_end() -> None:
        loop.remove_reader(pidfd)
        if not end.done():
            end.set_result(None)

    loop.add_reader(pidfd, on_end)
    hurried = asyncio.ensure_future(hurry.wait())
    try:
        await asyncio.wait((end, hurried), timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
    finally:
        hurried.cancel()
        loop.remove_reader(pidfd)


def end_group(identity: Identity) -> None:
    """Kill the rest of a process's group, unless its number has been reused."""
    if start_time(identity.pid) in (None, identity.started):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(identity.pid, signal.SIGKILL)


def value_of(option: str, arguments: Sequence[str]) -> str:
    """Return the value after an option of a command line; "": there is none."""
    try:
        return arguments[arguments.index(option) + 1]
    except (ValueError, IndexError):
        return ""


# Identifies processes by their entries in `/proc` (proc(5)).
#
# A process id alone is not enough, because the kernel reuses it; together with the time of the
# process's start it identifies one process until the machine is booted again.

_PROC = Path("/proc")
# Fields of /proc/PID/stat after the name, which may contain any character: the 3rd and the 22nd.
_STATE, _START_TIME = 0, 19
_ENDED = ("Z", "X", "x")


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """One process and the resources that it was given.

    Attributes:
        boot: which boot of the machine it belongs to.
        started: its start in ticks of the clock since that boot.
        grant: what is reserved for it.
    """

    pid: int
    boot: str
    started: int
    grant: Grant = field(default_factory=Grant)

    def to_json(self) -> str:
        """Return it as JSON."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Read the output of ``to_json``; ``ValueError`` if the text is something else."""
        try:
            values = json.loads(text)
            grant = Grant(tuple(values["grant"]["cpus"]), tuple(values["grant"]["gpus"]))
            return cls(
                pid=int(values["pid"]),
                boot=str(values["boot"]),
                started=int(values["started"]),
                grant=grant,
            )
        except (TypeError, KeyError) as error:
            raise ValueError(f"not the identity of a process: {error}") from error

    def is_alive(self) -> bool:
        """Say whether that very process runs."""
        return self.is_of_this_boot() and self.started == start_time(self.pid)

    def is_of_this_boot(self) -> bool:
        """Say whether the machine has not been booted again since it began."""
        return self.boot == boot_id()


def identify(pid: int, grant: Grant) -> Identity:
    """Return the identity of a process that exists, ended or not.

    Raises:
        OSError: there is no such process, or the kernel tells nothing.
    """
    return Identity(pid=pid, boot=boot_id(), started=int(_stat(pid)[_START_TIME]), grant=grant)


def start_time(pid: int) -> int | None:
    """Return when a process began, in ticks since the boot; ``None`` if it does not run."""
    try:
        fields = _stat(pid)
    except OSError:
        return None
    return None if fields[_STATE] in _ENDED else int(fields[_START_TIME])


def boot_id() -> str:
    """Return the id of this boot of the machine."""
    return (_PROC / "sys/kernel/random/boot_id").read_text().strip()


def commands() -> Iterator[tuple[int, list[str]]]:
    """Yield the processes of this user with their arguments."""
    for entry in _PROC.iterdir():
        if not entry.name.isdecimal():
            continue
        try:
            if entry.stat().st_uid == os.getuid():
                yield (
                    int(entry.name),
                    os.fsdecode(entry.joinpath("cmdline").read_bytes()).split("\0"),
                )
        except OSError:  # It has ended meanwhile.
            continue


def output_of(pid: int) -> str:
    """Return the name of the file that is a process's standard output; "" if it has ended."""
    try:
        return (_PROC / str(pid) / "fd/1").readlink().name
    except OSError:
        return ""


def _stat(pid: int) -> list[str]:
    text = (_PROC / str(pid) / "stat").read_text(errors="replace")
    return text.rpartition(")")[2].split()
