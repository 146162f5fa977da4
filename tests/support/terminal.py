"""A terminal: what somebody sees who runs a command in one."""

import os
import subprocess
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import pyte

_COLUMNS, _ROWS = 100, 30
_READ_BYTES = 1 << 16
_END_TIMEOUT_S = 20.0


class Terminal:
    """A command in a pseudo-terminal, and the screen that a terminal makes of what it writes."""

    def __init__(
        self,
        command: Sequence[str],
        environment: Mapping[str, str],
        cwd: Path,
        *,
        columns: int = _COLUMNS,
        rows: int = _ROWS,
    ) -> None:
        self._screen = pyte.HistoryScreen(columns, rows, history=10_000)
        self._stream = pyte.ByteStream(self._screen)
        self._lock = threading.Lock()
        self._master, slave = os.openpty()
        os.set_inheritable(slave, True)
        try:
            self.process = subprocess.Popen(
                command,
                cwd=cwd,
                env={
                    **environment,
                    "TERM": "xterm",
                    "COLUMNS": str(columns),
                    "LINES": str(rows),
                },
                stdin=slave,
                stdout=slave,
                stderr=slave,
                start_new_session=True,
            )
        finally:
            os.close(slave)
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def rows(self) -> list[str]:
        """Return what is to be seen, from the first row that has scrolled away to the last one."""
        with self._lock:
            gone = [
                "".join(row[column].data for column in range(self._screen.columns))
                for row in self._screen.history.top
            ]
            shown = [*gone, *self._screen.display]
        rows = [row.rstrip() for row in shown]
        while rows and not rows[-1]:
            rows.pop()
        return rows

    def text(self) -> str:
        """Return the same as one text."""
        return "\n".join(self.rows())

    def wait(self) -> int:
        """Wait for the command's end and for all that it has written; return its status."""
        status = self.process.wait(_END_TIMEOUT_S)
        self._thread.join(_END_TIMEOUT_S)
        return status

    def close(self) -> None:
        """End the command, however it is."""
        self.process.kill()
        self.wait()
        os.close(self._master)

    def _read(self) -> None:
        while True:
            try:
                data = os.read(self._master, _READ_BYTES)
            except OSError:  # Nobody has the other end any more.
                return
            with self._lock:
                self._stream.feed(data)


@contextmanager
def terminal(
    *command: str,
    environment: Mapping[str, str],
    cwd: Path,
    columns: int = _COLUMNS,
    rows: int = _ROWS,
) -> Iterator[Terminal]:
    """Run a command in a terminal until the end of the context."""
    opened = Terminal(command, environment, cwd, columns=columns, rows=rows)
    try:
        yield opened
    except BaseException as error:
        error.add_note(opened.text())
        raise
    finally:
        opened.close()
