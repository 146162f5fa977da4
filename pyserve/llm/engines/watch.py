"""Runs a server for as long as its replica lives; a separate program that imports no other modules.

The replica holds the other end of a pipe. When the replica ends, even by ``kill -9``, that end is
closed, and this program ends the server's whole process group.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import threading

_PR_SET_PDEATHSIG = 1


def main(pipe: int, grace_s: float, command: list[str]) -> int:
    """Run a command until it ends, or until the pipe is closed; return its exit status.

    Args:
        pipe: Its reading end.
        grace_s: Between SIGTERM and SIGKILL.
        command: Program and arguments.
    """
    # A terminal's Ctrl-C is for the replica, which then closes the pipe.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    server = subprocess.Popen(
        command,
        preexec_fn=_end_with_parent,  # noqa: PLW1509 (there are no threads yet)
        process_group=0,
    )
    threading.Thread(target=_end_with_pipe, args=(pipe, grace_s, server), daemon=True).start()
    status = server.wait()
    with contextlib.suppress(ProcessLookupError):  # What it has left behind.
        os.killpg(server.pid, signal.SIGKILL)
    return status if status >= 0 else 128 - status


def _end_with_parent() -> None:
    """Have the kernel kill the server if this process is killed."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _end_with_pipe(pipe: int, grace_s: float, server: subprocess.Popen[bytes]) -> None:
    while os.read(pipe, 1):
        pass
    server.terminate()
    try:
        server.wait(grace_s)
    except subprocess.TimeoutExpired:
        server.kill()


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), float(sys.argv[2]), sys.argv[3:]))
