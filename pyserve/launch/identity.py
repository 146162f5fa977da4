"""Identifies processes by their entries in ``/proc`` (proc(5)).

A process id alone is not enough, because the kernel reuses it; together with the time of the
process's start it identifies one process until the machine is booted again.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Self

from pyserve.launch.ledger import Grant

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
