"""An engine's own server as a child process of the replica: starts it, waits for it, ends it."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from pyserve.config.engines import child_environment
from pyserve.errors import PyserveError
from pyserve.llm.engines.http_client import HttpClient, Origin, ServerGone

_WATCH = Path(__file__).with_name("watch.py")
_GRACE_S = 10.0
# Servers of other projects do not report when they are ready, so they are polled.
_ASK_EACH_S = 0.2
_ANSWER_TIMEOUT_S = 5.0
_OK = 200
_PORT = "{port}"


class ChildFailed(PyserveError):
    """The engine's own server did not start, or has ended."""


def free_port() -> int:
    """Return a port of the loopback interface that is free now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class Child:
    """A server that a command starts at a port of the loopback.

    Args:
        command: Program and arguments; ``{port}`` in them becomes the port's number.
        environment: Variables beside those of the replica.
    """

    def __init__(self, command: Sequence[str], environment: Mapping[str, str]) -> None:
        self.port = free_port()
        self._command = [each.replace(_PORT, str(self.port)) for each in command]
        reading, self._pipe = os.pipe()
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-S", str(_WATCH), str(reading), str(_GRACE_S), *self._command],
                stdin=subprocess.DEVNULL,
                env=child_environment(environment),
                pass_fds=(reading,),
                # So that a terminal's signals do not reach it, and its group can be killed.
                start_new_session=True,
            )
        except BaseException:
            os.close(self._pipe)
            raise
        finally:
            os.close(reading)

    @property
    def name(self) -> str:
        """The program, for people."""
        return self._command[0]

    def check(self) -> None:
        """Raise if it has ended.

        Raises:
            ChildFailed: It has; with its exit status.
        """
        status = self._process.poll()
        if status is not None:
            raise ChildFailed(
                f"{' '.join(self._command)} ended with exit status {status}; the replica's log has "
                f"what it has written"
            )

    async def ready(self, paths: Sequence[str], timeout_s: float) -> None:
        """Wait until one of the paths is answered with 200.

        Raises:
            ChildFailed: It has ended, or takes longer than ``timeout_s``.
        """
        client = HttpClient(Origin("127.0.0.1", self.port), {}, connect_timeout_s=_ANSWER_TIMEOUT_S)
        ends_at = time.monotonic() + timeout_s
        try:
            while not await _answers(client, paths):
                self.check()
                if time.monotonic() > ends_at:
                    raise ChildFailed(
                        f"{self.name} has not answered at port {self.port} within {timeout_s:g} s; "
                        f"give it more by startup_timeout_s, or name the port with {_PORT!r} in "
                        f"its command"
                    )
                await asyncio.sleep(_ASK_EACH_S)
        finally:
            await client.close()

    async def close(self) -> None:
        """End it, at first by SIGTERM, and wait until it has ended."""
        self.abandon()
        await asyncio.to_thread(self._process.wait)

    def abandon(self) -> None:
        """Let it end, without waiting. Idempotent."""
        if self._pipe >= 0:
            os.close(self._pipe)
            self._pipe = -1


async def _answers(client: HttpClient, paths: Sequence[str]) -> bool:
    for path in paths:
        try:
            async with asyncio.timeout(_ANSWER_TIMEOUT_S), client.open("GET", path) as response:
                if response.status == _OK:
                    return True
        except (ServerGone, TimeoutError):
            return False
    return False
