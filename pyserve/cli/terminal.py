"""The lines that the mesh has for the terminal of a ``pyserve run``."""

from __future__ import annotations

import contextlib
import sys
import threading
from types import TracebackType
from typing import TYPE_CHECKING, Self

from pyserve.errors import PyserveError

if TYPE_CHECKING:
    from pyserve.control.state.run import Run
    from pyserve.driver.client import ControlClient

# A thread that prints a line notices its end at once.
_JOIN_TIMEOUT_S = 2.0


class Terminal:
    """Prints what befalls the run's application while it is entered, in a thread.

    Args:
        client: Speaks with the controller.
        run: Whose terminal it is. The mesh knows it as long as this is entered.

    Raises:
        MeshError: The controller does not answer.
    """

    def __init__(self, client: ControlClient, run: Run) -> None:
        self._client = client
        self._run = run
        self._lines = client.follow(run)
        self._closed = threading.Event()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._print, name="pyserve-lines", daemon=True)

    def has_ended(self, *, unexpectedly: bool = False) -> bool:
        """Say whether the mesh has ended; ``unexpectedly``: without having said so."""
        return self._ended.is_set() and not (unexpectedly and self._lines.has_ended_in_order)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._closed.set()
        self._lines.close()
        self._thread.join(_JOIN_TIMEOUT_S)

    def _print(self) -> None:
        while not self._closed.is_set():
            for line in self._lines:
                sys.stderr.write(f"pyserve: {line}\n")
                sys.stderr.flush()
            if self._closed.is_set() or self._lines.has_ended_in_order:
                break
            if not self._follow_again():
                break
        if not self._closed.is_set():
            self._ended.set()

    def _follow_again(self) -> bool:
        """Follow the mesh once more: the connection may have broken, or the controller died."""
        # The first attempt may meet the sockets of one that is about to die.
        for _ in range(2):
            with contextlib.suppress(PyserveError):
                self._lines = self._client.follow(self._run)
                return True
        return False
