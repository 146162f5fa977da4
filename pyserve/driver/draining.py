"""Shows how a drain goes: how many calls are left, and for how long they may take."""

from __future__ import annotations

import math
import sys
import threading
import time
from types import TracebackType
from typing import TYPE_CHECKING, Self

from pyserve.errors import PyserveError

if TYPE_CHECKING:
    from pyserve.driver.client import ControlClient
    from pyserve.driver.screen import Screen
    from pyserve.wire.v1 import control_pb2

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
