"""Shows how far a deployment has come, and how a drain goes: how many calls are left.

A live line on a terminal, plain lines otherwise.
"""

from __future__ import annotations

import math
import sys
import threading
import time
from types import TracebackType
from typing import TYPE_CHECKING, Protocol, Self, TextIO

from pyserve.errors import PyserveError

if TYPE_CHECKING:
    from rich.progress import TaskID

    from pyserve.driver.client import ControlClient
    from pyserve.driver.screen import Screen
    from pyserve.wire.v1 import control_pb2


_BARS = "bars"


class ProgressView(Protocol):
    """Takes progress while it is entered."""

    def update(self, progress: control_pb2.Progress) -> None:
        """Show one event."""

    def __enter__(self) -> Self: ...
    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...


class PlainProgress:
    """Writes one line for each change."""

    def __init__(self, file: TextIO) -> None:
        self._file = file
        self._last: dict[str, str] = {}

    def update(self, progress: control_pb2.Progress) -> None:
        """Write the event, unless it says what the last one said."""
        text = _note(progress)
        note = f" ({text})" if text else ""
        line = f"{progress.deployment}: {progress.ready} of {progress.wanted} replicas ready{note}"
        if self._last.get(progress.deployment) != line:
            self._last[progress.deployment] = line
            self._file.write(f"pyserve: {line}\n")
            self._file.flush()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        pass


class LiveProgress:
    """Draws one bar for each deployment."""

    def __init__(self, screen: Screen) -> None:
        from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

        self._screen = screen
        # The screen draws it.
        self._bars = Progress(
            SpinnerColumn(),
            TextColumn("[bold]{task.description}"),
            BarColumn(bar_width=24),
            TextColumn("{task.completed:.0f}/{task.total:.0f} ready"),
            TimeElapsedColumn(),
            TextColumn("[dim]{task.fields[note]}"),
            auto_refresh=False,
        )
        self._tasks: dict[str, TaskID] = {}

    def update(self, progress: control_pb2.Progress) -> None:
        """Move the deployment's bar."""
        from rich.markup import escape

        task = self._tasks.get(progress.deployment)
        # Brackets in a note are text, not markup.
        note = escape(_note(progress))
        if task is None:
            task = self._bars.add_task(progress.deployment, total=progress.wanted, note="")
            self._tasks[progress.deployment] = task
        self._bars.update(task, completed=progress.ready, total=progress.wanted, note=note)

    def __enter__(self) -> Self:
        self._screen.show(_BARS, self._bars)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._screen.hide(_BARS)


def _note(progress: control_pb2.Progress) -> str:
    """Return the note to show beside the counts.

    The error that ends a deploy tells a failure in full.
    """
    line = progress.note.partition("\n")[0]
    return "" if line == "is ready" else line  # As the counts say already.


def progress_view(screen: Screen | None = None, file: TextIO | None = None) -> ProgressView:
    """Return the view that suits a file, by default standard error.

    Args:
        screen: Draws on it already; ``None``: nobody does.
        file: Where to show progress.
    """
    target = sys.stderr if file is None else file
    if screen is None and target.isatty():
        from pyserve.driver.screen import Screen

        screen = Screen(target)
    return PlainProgress(target) if screen is None else LiveProgress(screen)


# A person watches, and nothing announces the end of a call.
_LOOK_S = 0.25
# Where lines cannot be redrawn, fewer are enough.
_LINE_S = 1.0
_ANSWER_TIMEOUT_S = 2.0
_ROW = "draining"


class Draining:
    """A context that polls a mesh, in a thread, and shows what its drain waits for.

    It shows nothing for a drain that waits for no call, or for a mesh that stays.

    Args:
        client: Speaks with the controller, which ends meanwhile.
        screen: Draws on the terminal; ``None``: lines are written to standard error.
    """

    def __init__(self, client: ControlClient, screen: Screen | None) -> None:
        self._client = client
        self._screen = screen
        self._ended = threading.Event()
        self._told = 0
        self._told_at = -math.inf
        self._thread = threading.Thread(target=self._look, name="pyserve-draining", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._ended.set()
        self._thread.join(_ANSWER_TIMEOUT_S)
        if self._screen is not None:
            self._screen.hide(_ROW)

    def _look(self) -> None:
        while not self._ended.wait(_LOOK_S):
            try:
                reply = self._client.status()
            except PyserveError:
                # It has ended, which the thread that waits for it notices too.
                return
            if reply.HasField("drain_left_s") and not self._ended.is_set():
                self._tell(reply)

    def _tell(self, reply: control_pb2.StatusReply) -> None:
        calls = reply.ingress.in_flight + reply.ingress.parked
        text = (
            f"draining: {calls} {'call' if calls == 1 else 'calls'} left, "
            f"{math.ceil(reply.drain_left_s)} s at most"
        )
        if self._screen is not None:
            from rich.text import Text

            if calls:
                self._screen.show(_ROW, Text(text))
            else:
                self._screen.hide(_ROW)
        elif calls != self._told and time.monotonic() - self._told_at >= _LINE_S:
            self._told, self._told_at = calls, time.monotonic()
            sys.stderr.write(f"pyserve: {text}\n")
