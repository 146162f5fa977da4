"""What user code may raise to leave, and how Ctrl-C is told from it.

``SystemExit`` and ``KeyboardInterrupt`` end an event loop when they leave a task of it. A call, a
batch or a constructor that raises one has failed, and nothing else has.
"""

from __future__ import annotations

import signal
import threading

EXITS: tuple[type[BaseException], ...] = (SystemExit, KeyboardInterrupt)
FAILURES: tuple[type[BaseException], ...] = (Exception, *EXITS)


def is_ctrl_c(error: BaseException) -> bool:
    """Return whether an exception may be the user's wish to end this process.

    Where SIGINT has a handler, as in every process of a mesh, nobody but code raises one.
    """
    return (
        isinstance(error, KeyboardInterrupt)
        and threading.current_thread() is threading.main_thread()
        and signal.getsignal(signal.SIGINT) is signal.default_int_handler
    )


def raise_ctrl_c(error: BaseException) -> None:
    """Raise an exception again if it may be the user's wish to end this process."""
    if is_ctrl_c(error):
        raise error
