"""Shows how far a deployment has come: a live line on a terminal, plain lines otherwise."""

from __future__ import annotations

import sys
from types import TracebackType
from typing import TYPE_CHECKING, Protocol, Self, TextIO

if TYPE_CHECKING:
    from rich.progress import TaskID

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
