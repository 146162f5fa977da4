"""The controllers of a program's mesh, one after the other, as children of this process.

It imports the standard library only, and of that little: the first controller starts before
anything else of this process.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence

# Those of this process's options that are not the controller's.
_OWN = ("--address=", "--report-fd=")
_DESCRIPTORS = ("--liveness-fd=", "--screen-fd=")


class Controllers:
    """Starts controllers that are alike, and holds what outlives them.

    The writing end of one pipe stays in this process alone: where it closes, whichever controller
    runs and all replicas end.

    Args:
        arguments: of this process's command line.
    """

    def __init__(self, arguments: Sequence[str]) -> None:
        self._keeper, self._writer = os.pipe()
        has_ingress = any(each.startswith("--address=") for each in arguments)
        self._arguments = [
            *(each for each in arguments if not each.startswith(_OWN)),
            *(["--no-admin"] if has_ingress else []),
            f"--keeper-fd={self._keeper}",
        ]
        self._descriptors = [
            self._keeper,
            *(int(_value(each)) for each in arguments if each.startswith(_DESCRIPTORS)),
        ]
        for each in arguments:
            if each.startswith("--lease="):
                self._descriptors += map(int, _value(each).split(",")[:2])

    def start(self) -> ControllerProcess:
        """Start one; ``OSError`` if the interpreter cannot be started."""
        report, writer = os.pipe()
        try:
            process = subprocess.Popen(
                [
                    *(sys.executable, "-P", "-m", "pyserve.control"),
                    f"--report-fd={writer}",
                    *self._arguments,
                ],
                stdin=subprocess.DEVNULL,
                pass_fds=(writer, *self._descriptors),
            )
        except OSError:
            os.close(report)
            raise
        finally:
            os.close(writer)
        return ControllerProcess(process, report)


class ControllerProcess:
    """One controller.

    Attributes:
        process: its handle.
    """

    def __init__(self, process: subprocess.Popen[bytes], report: int) -> None:
        self.process = process
        self._report = report

    def read_report(self) -> bytes:
        """Block until it has said that it is ready, or why not; b"": it has ended."""
        with os.fdopen(self._report, "rb") as file:
            return file.readline()

    def how_it_ended(self) -> str:
        """Return its end in words; it has ended."""
        status, pid = self.process.returncode, self.process.pid
        if status < 0:
            return f"the controller (process {pid}) was ended by signal {-status}"
        return f"the controller (process {pid}) ended with status {status}"


def _value(argument: str) -> str:
    return argument.partition("=")[2]
