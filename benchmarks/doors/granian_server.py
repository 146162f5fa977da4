"""The bare ASGI application under granian, one worker, on uvloop.

Prints its address and process id as one line of JSON and serves until standard input ends.
"""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
from pathlib import Path

from benchmarks.first_hour.trial import free_port
from benchmarks.machine import ROOT

_START_TIMEOUT_S = 30.0
_STOP_TIMEOUT_S = 10.0


def main() -> None:
    """Run granian as its users do, by its command."""
    port = free_port()  # granian takes no port of the system's choice.
    program = Path(sys.executable).with_name("granian")
    command = [
        *(str(program), "benchmarks.doors.applications:echo_body"),
        *("--interface", "asginl", "--loop", "uvloop", "--host", "127.0.0.1", "--port", str(port)),
        *("--log-level", "error"),
    ]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.DEVNULL) as granian:
        try:
            _wait_until_it_listens(port, granian)
            print(json.dumps({"address": f"127.0.0.1:{port}", "pid": granian.pid}), flush=True)
            sys.stdin.buffer.read()
        finally:
            granian.terminate()
            granian.wait(_STOP_TIMEOUT_S)


def _wait_until_it_listens(port: int, granian: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + _START_TIMEOUT_S
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1.0).close()
        except ConnectionRefusedError:
            if granian.poll() is not None:
                raise SystemExit(f"granian ended with {granian.returncode}") from None
            if time.monotonic() > deadline:
                raise SystemExit(f"granian did not listen within {_START_TIMEOUT_S:g} s") from None
            time.sleep(0.02)  # Nothing tells when another's port opens.
        else:
            return


if __name__ == "__main__":
    main()
