"""Ends replicas of this machine that are not watched, after they have finished their calls."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Iterable, Sequence
from pathlib import Path

from pyserve.config.control import KILL_MARGIN_S, SHUTDOWN_GRACE_S
from pyserve.launch.identity import Identity, commands, identify, start_time
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
