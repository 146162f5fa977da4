"""Keeps the signals of a replica from processes that user code forks.

A fork inherits the handlers and the wake-up descriptor, which it shares with its parent: the
parent would take a SIGTERM for the child as its own, and drain. So signals are held back while
a fork is made, and the child gets Python's own handlers before they are let through.

``pyserve.bridge`` shuts the descriptors that a fork inherits.
"""

from __future__ import annotations

import os
import signal
import threading

_SIGNALS = (signal.SIGTERM, signal.SIGINT)


class _Held(threading.local):
    """The signal mask of a forking thread before the fork."""

    mask: frozenset[int] = frozenset()


def separate_forks() -> None:
    """Keep the replica's signals from forks, for the rest of the process's life."""
    held = _Held()

    def before() -> None:
        held.mask = frozenset(signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS))

    def after_in_parent() -> None:
        signal.pthread_sigmask(signal.SIG_SETMASK, held.mask)

    def after_in_child() -> None:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.pthread_sigmask(signal.SIG_SETMASK, held.mask)

    os.register_at_fork(
        before=before, after_in_parent=after_in_parent, after_in_child=after_in_child
    )
