"""The machine on which a figure was measured."""

from __future__ import annotations

import datetime
import os
import platform
import re
import subprocess
from importlib import metadata
from pathlib import Path

ROOT = Path(__file__).parent.parent


def stamp() -> dict[str, object]:
    """Describe this machine, its software and the state of the sources."""
    return {
        "time": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "cpu": cpu_model(Path("/proc/cpuinfo").read_text(encoding="utf-8")),
        "cpus": sorted(os.sched_getaffinity(0)),
        "memory_gib": round(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30, 1),
        "load_average": list(os.getloadavg()),
        "kernel": platform.release(),
        "python": platform.python_version(),
        **{name: _version(name) for name in ("grpcio", "protobuf", "uvloop")},
        "rustc": _output("rustc", "--version"),
        "commit": _output("git", "-C", str(ROOT), "rev-parse", "HEAD"),
        "changed_files": len(_output("git", "-C", str(ROOT), "status", "--short").splitlines()),
    }


def cpu_model(cpuinfo: str) -> str:
    """Name the processor; where the kernel has no name for it, its numbers."""
    fields = dict(re.findall(r"^(\w[\w ]*?)\s*: (.*)$", cpuinfo, re.MULTILINE))
    if name := fields.get("model name") or fields.get("Model"):
        return str(name)
    numbers = [
        f"{key} {fields[key]}" for key in ("vendor_id", "cpu family", "model") if key in fields
    ]
    return ", ".join(numbers) or platform.machine()


def _version(distribution: str) -> str:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return "not installed"


def _output(*command: str) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=20)
    except (OSError, subprocess.SubprocessError):
        return "unknown"
    return done.stdout.strip()
