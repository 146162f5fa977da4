"""Runs a command whose processes end with the program that has started it, however that ends.

As a program it is the guard: it runs the command in a session of its own, and kills all of that
when its standard input ends. A pipe's other end closes with its process, also when that is killed;
and a signal for the group of a terminal does not reach the guard.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

_END_TIMEOUT_S = 20.0


@contextmanager
def guarded(
    command: Sequence[str], environment: Mapping[str, str]
) -> Iterator[subprocess.Popen[bytes]]:
    """Run a command until the block ends, or this process does.

    Args:
        command: What to run, with its arguments; its standard input is empty.
        environment: All its variables.

    Yields:
        Its guard, which ends when the command does, with its status.
    """
    guard = subprocess.Popen(
        [sys.executable, "-P", str(Path(__file__)), *command],
        env=dict(environment),
        stdin=subprocess.PIPE,
        start_new_session=True,
    )
    try:
        yield guard
    finally:
        assert guard.stdin is not None
        guard.stdin.close()
        guard.wait(_END_TIMEOUT_S)


def _guard(command: Sequence[str]) -> int:
    """Run the command until it or the standard input ends; return its status."""
    # The command must not outlive its guard. It inherits what is ignored, but no handlers.
    for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(each, lambda *_: None)
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True)
    ended = os.pidfd_open(process.pid)
    select.select([sys.stdin.fileno(), ended], [], [])
    # Before it is waited for, since until then nobody else can have its number.
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    return process.wait()


if __name__ == "__main__":
    sys.exit(_guard(sys.argv[1:]))
