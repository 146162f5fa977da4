"""Keeps the loop of a replica running when user code leaves it by an exit.

A ``SystemExit`` leaves its task, and the loop with it: one request would end all others. The tasks
of calls catch it; task groups of user code, and the middlewares of frameworks, make more of them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from pyserve.observe.failures import exc_info_of, failure_logger
from pyserve.replica.loading import StopRequested

_LOGGER = failure_logger(__name__)


def run_to_end(runner: asyncio.Runner, main: Coroutine[Any, Any, int]) -> int:
    """Return what ``main`` returns, whatever tasks of user code raise.

    Args:
        runner: Of the loop.
        main: The work of the process; what it raises itself passes through.
    """
    loop = runner.get_loop()
    task = loop.create_task(main)
    while True:
        try:
            return loop.run_until_complete(task)
        except (SystemExit, KeyboardInterrupt) as raised:
            if task.done():
                raise
            error = raised
        # Not in the handler, where it would be the context of all that is raised from now on.
        if not isinstance(error, StopRequested):  # The worker has been told, too.
            kind, exc_info = type(error).__name__, exc_info_of(error)
            _LOGGER.error("a task raised %s; the replica goes on", kind, exc_info=exc_info)
