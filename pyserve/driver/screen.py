"""The terminal of a driver: lines above, and below them what changes.

Whatever the mesh of this process has to show comes over a pipe and is written here, so that
nothing is drawn over a line. What changes (bars of a deployment, progress bars of replicas, a
drain) is drawn anew below the last line, and leaves nothing behind.

Loads rich, which takes a while: import it where there is a terminal.
"""

from __future__ import annotations

import math
import os
import re
import sys
import threading
import time
import weakref
from collections.abc import Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Protocol, Self, TextIO

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from pyserve.config.control import PASSING
from pyserve.errors import PyserveError

if TYPE_CHECKING:
    from rich.progress import TaskID

    from pyserve.driver.client import ControlClient
    from pyserve.wire.v1 import control_pb2
_READ_BYTES = 1 << 16
_REFRESH_PER_SECOND = 10
# The last lines of a mesh that has ended are in the pipe already.
_END_TIMEOUT_S = 2.0
_ENDS = re.compile(rb"([\n\r])")
# Who has written a line: "[Echo#k3f2x] ".
_SOURCE = re.compile(r"\[[^\]]+\] ")


class _Console(Console):
    def show_cursor(self, show: bool = True) -> bool:  # noqa: ARG002
        """Leave the cursor alone: a program that is killed could not show it again."""
        return False


class Screen:
    """A terminal that this process draws on; any thread may call.

    Args:
        file: The terminal.
        is_own: Nothing else is shown there while the mesh runs, as under ``pyserve run``: what
            is passing in rows of replicas is shown at any time, not only beside other things.
    """

    def __init__(self, file: TextIO, *, is_own: bool = False) -> None:
        self._file = file
        self._is_own = is_own
        self._console = _Console(file=file)
        self._lock = threading.RLock()
        self._shown: dict[str, RenderableType] = {}
        self._passing: dict[str, Text] = {}
        self._live: Live | None = None
        self._reader = -1
        self._thread: threading.Thread | None = None

    def open_pipe(self) -> int:
        """Show what comes over a pipe from now on; return its other end, for the caller to close.

        Call it once.
        """
        self._reader, writer = os.pipe()
        self._thread = threading.Thread(target=self._relay, name="pyserve-screen", daemon=True)
        self._thread.start()
        # A fork must not keep the mesh waiting for a reader that is gone.
        let_go = weakref.WeakMethod(self._let_go)
        os.register_at_fork(after_in_child=lambda: (method := let_go()) and method())
        return writer

    def show(self, name: str, what: RenderableType) -> None:
        """Draw something below all lines until ``hide``; it is rendered again as time passes."""
        with self._lock:
            self._shown[name] = what
            self._draw()

    def hide(self, name: str) -> None:
        """Take it away. Idempotent."""
        with self._lock:
            if name in self._shown and self._live is not None:
                # Show its final state, even if only for a moment.
                self._live.refresh()
            self._shown.pop(name, None)
            self._draw()

    def line(self, text: str) -> None:
        """Write a line above the part that is redrawn."""
        with self._lock:
            self._passing.pop(_source(text), None)
            self._draw()
            if self._live is None:
                self._file.write(f"{text}\n")
                self._file.flush()
            else:
                # As it is: the terminal itself breaks lines that are too long for it.
                self._console.print(Text.from_ansi(text), soft_wrap=True, highlight=False)

    def passing(self, text: str) -> None:
        """Show what stands in a row of a replica now; its next line takes its place."""
        with self._lock:
            source = _source(text)
            if text.removeprefix(source).strip():
                row = Text.from_ansi(text, no_wrap=True, overflow="ellipsis")
                self._passing[source] = row
            else:
                self._passing.pop(source, None)
            self._draw()

    def close(self, *, has_ended: bool = True) -> None:
        """Draw nothing any more. Idempotent.

        Args:
            has_ended: The mesh has, and what it wrote last is shown before.
        """
        if self._thread is not None and has_ended:
            self._thread.join(_END_TIMEOUT_S)
        with self._lock:
            self._shown.clear()
            self._passing.clear()
            self._draw()

    def _draw(self) -> None:
        is_wanted = bool(self._shown) or (self._is_own and bool(self._passing))
        if is_wanted and self._live is None:
            self._live = Live(
                get_renderable=self._below,
                console=self._console,
                transient=True,
                refresh_per_second=_REFRESH_PER_SECOND,
                # Elsewhere it is not in the way.
                redirect_stdout=sys.stdout.isatty(),
            )
            self._live.start(refresh=True)
        elif not is_wanted and self._live is not None:
            self._live.stop()
            self._live = None

    def _below(self) -> RenderableType:
        # Without the lock, which may be held by who waits for the thread that asks; copied at once.
        return Group(*list(self._passing.values()), *list(self._shown.values()))

    def _relay(self) -> None:
        for text, end in _pieces(self._reader):
            if end == PASSING:
                self.passing(text)
            else:
                self.line(text)
        self._let_go()

    def _let_go(self) -> None:
        if self._reader >= 0:
            os.close(self._reader)
            self._reader = -1


def _pieces(descriptor: int) -> Iterator[tuple[str, str]]:
    """Yield each text that comes, and how it ends."""
    kept = b""
    while data := os.read(descriptor, _READ_BYTES):
        *parts, kept = _ENDS.split(kept + data)
        for text, end in zip(parts[::2], parts[1::2], strict=True):
            yield text.decode(errors="replace"), end.decode()


def _source(text: str) -> str:
    found = _SOURCE.match(text)
    return found[0] if found else ""


# Shows how far a deployment has come: a live line on a terminal, plain lines otherwise.

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
        screen = Screen(target)
    return PlainProgress(target) if screen is None else LiveProgress(screen)


# Shows how a drain goes: how many calls are left, and for how long they may take.

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
