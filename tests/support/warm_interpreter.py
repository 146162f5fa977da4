"""An interpreter with the command line imported, which forks for each command that it is told.

``tests.support.warm`` starts this file and talks to it over the socket that the argument names. It
has no thread and has read no setting, so a fork does what ``python -m pyserve`` does.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import resource
import runpy
import signal
import socket
import sys
from typing import Any

# Beside those that every command needs.
_MODULES = ("activity", "call", "commands", "deploy", "diagnosis", "run", "start", "status")
_REQUEST_BYTES_MAX = 1024 * 1024


def main(descriptor: int) -> None:
    """Import, serve, and in each fork become a command."""
    gc.disable()
    for name in _MODULES:
        importlib.import_module(f"pyserve.cli.{name}")
    gc.freeze()
    # Ctrl-C is for pytest, which then closes the socket.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with socket.socket(fileno=descriptor) as channel:
        told, descriptors = _serve(channel)
    gc.enable()
    _become(told, descriptors)
    runpy.run_module("pyserve", run_name="__main__", alter_sys=True)


def _serve(channel: socket.socket) -> tuple[dict[str, Any], list[int]]:
    """Answer requests; return in a fork, with what it has to run and its three streams."""
    while True:
        message, descriptors, _, _ = socket.recv_fds(channel, _REQUEST_BYTES_MAX, 3)
        if not message:
            os._exit(0)
        told = json.loads(message)
        if "reap" in told:
            _, status = os.waitpid(told["reap"], 0)
            channel.send(str(os.waitstatus_to_exitcode(status)).encode())
            continue
        pid = os.fork()
        if pid == 0:
            return told, descriptors
        for each in descriptors:
            os.close(each)
        channel.send(str(pid).encode())


def _become(told: dict[str, Any], descriptors: list[int]) -> None:
    """Make this process what one would be that the asking process had started itself."""
    for number, each in enumerate(descriptors):
        os.dup2(each, number)
        os.close(each)
    if told["has_own_session"]:
        os.setsid()
    os.sched_setaffinity(0, os.sched_getaffinity(told["starter"]))
    files = resource.prlimit(told["starter"], resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, files)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.environ.clear()
    os.environ.update(told["environment"])
    os.chdir(told["folder"])
    if told["imports_from_folder"]:
        sys.path.insert(0, told["folder"])
    sys.argv[1:] = told["arguments"]


if __name__ == "__main__":
    main(int(sys.argv[1]))
