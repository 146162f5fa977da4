"""Makes records of exceptions that nothing catches, and of warnings, which Python prints.

Either is several lines, which nothing holds together in a log of JSON objects, and is missing in
log files. Hooks that something else has set stay as they are: an error collector's, for example.
"""

from __future__ import annotations

import contextlib
import logging
import sys
import threading
from types import TracebackType

from pyserve.config.environment import read_log_defaults
from pyserve.config.logs import LogSettings
from pyserve.errors import OptionError
from pyserve.observe.failures import exc_info_of, failure_logger
from pyserve.observe.logs.sink import log_to_standard_error

_LOGGER = failure_logger(__name__)


def log_by_environment() -> None:
    """Send records to standard error, in the encoding that the environment asks for.

    A wrong setting changes nothing here; it is reported where all settings are read.
    """
    with contextlib.suppress(OptionError):
        _, encoding = read_log_defaults()
        log_to_standard_error(encoding=encoding or LogSettings.encoding)
        log_uncaught()


def log_uncaught() -> None:
    """Log what the main thread, threads and finalizers raise and nobody catches, and warnings.

    To be called when records have a destination. User code may set other hooks later.
    """
    if sys.excepthook is sys.__excepthook__:
        sys.excepthook = _log_of_main
    if threading.excepthook is threading.__excepthook__:
        threading.excepthook = _log_of_thread
    if sys.unraisablehook is sys.__unraisablehook__:
        sys.unraisablehook = _log_of_finalizer
    # Does nothing if it has been called before.
    logging.captureWarnings(True)


def _log_of_main(
    kind: type[BaseException], error: BaseException, trace: TracebackType | None
) -> None:
    if isinstance(error, KeyboardInterrupt):  # A wish, and no failure.
        sys.__excepthook__(kind, error, trace)
        return
    _LOGGER.error("uncaught %s", kind.__name__, exc_info=(kind, error, trace))


def _log_of_thread(arguments: threading.ExceptHookArgs) -> None:
    if issubclass(arguments.exc_type, SystemExit):  # It ends the thread, silently in Python too.
        return
    name = "a thread" if arguments.thread is None else f"thread {arguments.thread.name!r}"
    exc_info = exc_info_of(arguments.exc_value)
    _LOGGER.error("uncaught %s in %s", arguments.exc_type.__name__, name, exc_info=exc_info)


def _log_of_finalizer(arguments: sys.UnraisableHookArgs) -> None:
    # While the interpreter ends, parts of `logging` may be gone.
    if sys.is_finalizing():
        sys.__unraisablehook__(arguments)
        return
    what = arguments.err_msg or "Exception ignored in"
    exc_info = exc_info_of(arguments.exc_value)
    _LOGGER.error("%s: %s", what, _shown(arguments.object), exc_info=exc_info)


def _shown(value: object) -> str:
    try:
        return repr(value)
    except Exception:  # The user's.
        return f"<a {type(value).__name__}>"
