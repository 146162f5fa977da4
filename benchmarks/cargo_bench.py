"""Benches that are written in Rust and print their figures as JSON, a line each."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from typing import Any

from benchmarks.machine import ROOT


def bench_rows(
    crate: str, bench: str, *arguments: str, features: str = ""
) -> Iterator[dict[str, Any]]:
    """Run a bench of a crate, built with these features, and yield what it prints, as it comes.

    Raises:
        SystemExit: It failed; with its code.
    """
    command = ["cargo", "bench", "--locked", "--quiet", "-p", crate, "--bench", bench]
    if features:
        command += ["--features", features]
    if arguments:
        command += ["--", *arguments]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None, "it was asked for"
        for line in process.stdout:
            if line.startswith("{"):
                yield json.loads(line)
    if process.returncode:
        raise SystemExit(process.returncode)
