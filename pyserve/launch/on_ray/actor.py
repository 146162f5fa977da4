"""The actors that replicas and ingresses live in; this module runs on the nodes of the cluster.

The replica is a process of its own beside the actor's: it has its own signals, event loop and main
thread, and inherits what Ray reserves for the actor (devices, environment, node). It ends with the
actor, however that ends.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
import tempfile
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import ray

from pyserve.config import inherited_environment
from pyserve.config.control import PASSING
from pyserve.launch.on_ray.messages import ReplicaStart
from pyserve.launch.process import Process

# The label by which Ray knows zones (docs.ray.io, "Use labels to control scheduling").
_ZONE = "ray.io/availability-zone"
# Lines kept until they are asked for; more than a traceback has. Arbitrary.
_LINES_MAX = 1000
# Lines that come within this time are sent together. Arbitrary.
_GATHER_S = 0.05


@dataclass(frozen=True, slots=True)
class News:
    """A replica's output since it was last asked, and whether it has ended.

    Attributes:
        lines: its output.
        end: how it ended; ``None``: it has not ended.
    """

    lines: Sequence[str]
    end: str | None = None


class ReplicaActor:
    """One replica. All methods run in the actor's event loop."""

    def __init__(self) -> None:
        self._process: Process | None = None
        self._lines: deque[str] = deque(maxlen=_LINES_MAX)
        self._end: str | None = None
        self._has_news = asyncio.Event()

    async def start(self, beginning: ReplicaStart) -> int:
        """Start the replica, unless it has been; return the id of its process.

        Raises:
            OSError: It cannot be started here.
        """
        if self._process is None:
            self._process = self._begin(beginning)
        return self._process.pid

    async def news(self) -> News:
        """Wait for news, and return each piece once."""
        await self._has_news.wait()
        if self._end is None:
            await asyncio.sleep(_GATHER_S)
        lines = list(self._lines)
        self._lines.clear()
        if self._end is None:
            self._has_news.clear()
        return News(lines, self._end)

    async def stop(self, grace_s: float) -> None:
        """End the replica; see ``Launcher.stop``."""
        process = self._process
        if process is None:
            self._ended("was stopped before it began")
        elif grace_s > 0:
            process.terminate()
            asyncio.get_running_loop().call_later(grace_s, process.kill)
        else:
            process.kill()

    def _begin(self, beginning: ReplicaStart) -> Process:
        folder = beginning.working_directory
        is_here = bool(folder) and Path(folder).is_dir()
        token_reader, token_writer = os.pipe()
        # The other end is this process's alone, and closes with it.
        liveness_reader, self._liveness = os.pipe()
        try:
            # A token is far smaller than a pipe's buffer, so this cannot block.
            os.write(token_writer, beginning.token)
            return Process(
                [
                    *(sys.executable, "-P", "-m", "pyserve.replica"),
                    *beginning.arguments,
                    *("--token-fd", str(token_reader), "--liveness-fd", str(liveness_reader)),
                ],
                environment=inherited_environment(
                    {**_placed(beginning.names), **beginning.environment}
                ),
                working_directory=folder if is_here else None,
                descriptors=(token_reader, liveness_reader),
                on_line=self._said,
                on_exit=self._ended,
            )
        finally:
            for each in (token_writer, token_reader, liveness_reader):
                os.close(each)

    def _said(self, line: str) -> None:
        # Lines that are about to be overwritten, as in progress bars, are only for terminals.
        if not line.endswith(PASSING):
            self._lines.append(str(line))  # A long one shortened, so that messages are small.
            self._has_news.set()

    def _ended(self, summary: str) -> None:
        self._end = summary
        self._has_news.set()


class IngressActor(ReplicaActor):
    """An ingress of a node, which drains when the actor ends or the mesh does."""

    def _begin(self, beginning: ReplicaStart) -> Process:
        # Private, as the token is; for the sockets of the ingress too.
        home = tempfile.mkdtemp(prefix="pyserve-ingress-")
        token = Path(home) / "token"
        token.touch(0o600)
        token.write_text(beginning.token.hex())
        liveness_reader, self._liveness = os.pipe()
        environment = {
            **_placed(beginning.names),
            **beginning.environment,
            "PYSERVE_HOME": home,
            "PYSERVE_TOKEN_FILE": str(token),
        }
        try:
            return Process(
                [
                    *(sys.executable, "-P", "-m", "pyserve.gateway"),
                    *beginning.arguments,
                    *("--liveness-fd", str(liveness_reader)),
                ],
                environment=inherited_environment(environment),
                working_directory=None,
                descriptors=(liveness_reader,),
                on_line=self._said,
                on_exit=partial(self._ingress_ended, home),
            )
        finally:
            os.close(liveness_reader)

    def _ingress_ended(self, home: str, summary: str) -> None:
        shutil.rmtree(home, ignore_errors=True)
        self._ended(summary)


def _placed(names: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that say on which node this is, and in which zone."""
    context = ray.get_runtime_context()
    node = context.get_node_id()
    labels: Mapping[str, Any] = context.get_node_labels()
    return {
        "PYSERVE_NODE_ID": names.get(node, node),
        "PYSERVE_ZONE": str(labels.get(_ZONE, "")),
    }
