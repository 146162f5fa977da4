"""Runs the done callbacks of calls, on both sides."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

from pyserve.observe.failures import exc_info_of, failure_logger

# No call has failed: once a minute is enough.
_LOGGER = failure_logger(__name__, lines=None)


def run_callbacks(
    loop: asyncio.AbstractEventLoop, callbacks: Iterable[Callable[[], object]], place: str
) -> None:
    """Call each of them; what one raises goes to the exception handler of ``loop``.

    As asyncio does it for callbacks of its own: the others run, and only what ends the process
    (SystemExit, KeyboardInterrupt) is raised.

    Args:
        loop: Its exception handler is told.
        callbacks: In their order.
        place: Of what they are the callbacks, for the message.
    """
    for callback in callbacks:
        try:
            callback()
        except (SystemExit, KeyboardInterrupt):
            raise
        except BaseException as error:
            _tell(loop, f"a done callback of {place} failed", error)


def _tell(loop: asyncio.AbstractEventLoop, message: str, error: BaseException) -> None:
    if loop.get_exception_handler() is None:
        # The loop would log every one, and clients decide how many there are.
        _LOGGER.error("%s", message, exc_info=exc_info_of(error))
    else:
        loop.call_exception_handler({"message": message, "exception": error})
