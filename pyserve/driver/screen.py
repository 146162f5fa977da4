"""The terminal of a driver: lines above, and below them what changes.

Whatever the mesh of this process has to show comes over a pipe and is written here, so that
nothing is drawn over a line. What changes (bars of a deployment, progress bars of replicas, a
drain) is drawn anew below the last line, and leaves nothing behind.

Loads rich, which takes a while: import it where there is a terminal.
"""

from __future__ import annotations

import os
import re
import sys
import threading
import weakref
from collections.abc import Iterator
from typing import TextIO

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from pyserve.config.control import PASSING

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
