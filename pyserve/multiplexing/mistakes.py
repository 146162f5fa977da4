"""Finds failures of a loader that are the client's fault: a request for a model that is unknown.

Ids come from clients, so such a failure does not concern the service. Its text may be sent, its
status stays the same for repeated requests, and the log gets a line of it only from time to time.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from types import TracebackType

from pyserve.errors import Abort, ModelNotFound
from pyserve.observe.failures import failure_logger

# One line a minute and no shortened ones between: clients can cause any number of them.
_LOGGER = failure_logger(__name__, lines=None)


def answer_of(
    error: BaseException, function: Callable[..., object], model_id: str
) -> BaseException:
    """Return the error for the callers that wait for a load that has failed.

    A ``FileNotFoundError``, or a ``LookupError`` or ``ValueError`` that is raised in the file of
    the loader and not in a library below it, says that there is no such model.

    Args:
        error: What the loader raised.
        function: The loader.
        model_id: What it was asked for.
    """
    if is_final(error) or not _is_of_client(error, function):
        return error
    unknown = ModelNotFound(f"there is no model {model_id!r}")
    unknown.__cause__ = error
    return unknown


def is_final(error: BaseException) -> bool:
    """Return whether an error is itself the answer, with a status that the loader has chosen."""
    if isinstance(error, Abort | ModelNotFound):
        return True
    try:
        # This finds Starlette's HTTPException without importing Starlette.
        return isinstance(getattr(error, "status_code", None), int)
    except Exception:  # Attributes of an exception may be code of the user's.
        return False


def remembered(error: BaseException) -> Exception | None:
    """Return the error for later requests; ``None`` if it is not the client's mistake."""
    if isinstance(error, ModelNotFound):
        return type(error)(*error.args)
    if not isinstance(error, Exception) or not is_final(error):
        return None
    # Frames of the traceback may keep objects of the failed load alive.
    error.__cause__ = error.__context__ = None
    return error.with_traceback(None)


def tell(label: str, model_id: str, cause: str) -> None:
    """Log a wrong id, at most once a minute for each id."""
    _LOGGER.warning(
        "%s: there is no model %r (%s)", label, model_id, cause, extra={"place": (label, model_id)}
    )


def tell_missing(label: str) -> None:
    """Log requests that name no model, at most once a minute."""
    _LOGGER.warning("%s: a request names no model", label, extra={"place": label})


def _is_of_client(error: BaseException, function: Callable[..., object]) -> bool:
    if isinstance(error, FileNotFoundError):
        return True
    if not isinstance(error, LookupError | ValueError):
        return False
    last: TracebackType | None = error.__traceback__
    while last is not None and last.tb_next is not None:
        last = last.tb_next
    try:
        file = inspect.unwrap(getattr(function, "func", function)).__code__.co_filename
    except AttributeError:
        return False
    return last is not None and last.tb_frame.f_code.co_filename == file
