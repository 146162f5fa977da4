"""Turns the exception of a plain call into the status of its end.

A handle gets the exception itself, as plain data in a trailer. Other callers get a status and a
text that reveals nothing about the service's internals, unless the mesh runs in development mode.
"""

from __future__ import annotations

from types import TracebackType
from typing import Any

from grpc import StatusCode

from pyserve.aio import Status
from pyserve.aio._outcome import LATE_DETAILS, is_late
from pyserve.api.handles.failures import FAILURE_KEY, encode_failure
from pyserve.errors import Abort, ModelNotFound, PyserveError
from pyserve.observe.failures import exc_info_of, failure_logger
from pyserve.observe.places import text_of
from pyserve.replica.plain import calls
from pyserve.replica.refusals import CallFailure

_LOGGER = failure_logger(__name__)
_NEUTRAL_DETAILS = "The deployment raised an exception; its log has the traceback."


def status_of_plain(error: BaseException, context: Any, *, development: bool) -> Status:
    """Return the status of a plain call whose handler raised; log unexpected exceptions.

    Args:
        error: What it raised.
        context: The call's ``ServicerContext``.
        development: Whether texts of exceptions may reach callers that are no handles.
    """
    framed = context.call.framed
    trailers: tuple[tuple[str, str | bytes], ...] = ()
    if framed:
        trailers = ((FAILURE_KEY, encode_failure(error)),)
    if isinstance(error, Abort):
        return Status(error.code, error.details, (*error.trailing_metadata, *trailers))
    mistaken = isinstance(error, ModelNotFound) or _is_wrong_call(error)
    late = is_late(error, context.time_remaining())
    code = StatusCode.DEADLINE_EXCEEDED if late else _code_of(error)
    if late:
        _LOGGER.debug("%s ran out of time", context.method.path, exc_info=exc_info_of(error))
    elif not mistaken and context.cancel_reason is None:
        path = context.method.path
        _LOGGER.error(
            "unexpected %s in %s", type(error).__name__, path, exc_info=exc_info_of(error)
        )
    if mistaken and not framed:
        wrong = error.code if isinstance(error, ModelNotFound) else StatusCode.INVALID_ARGUMENT
        return Status(wrong, str(error))
    if framed or development:
        return Status(code, f"{type(error).__name__}: {text_of(error)}"[:_DETAILS_MAX], trailers)
    return Status(code, LATE_DETAILS if late else _NEUTRAL_DETAILS)


# A status has to fit into the 8 KiB that most peers allow for headers; arbitrary beyond that.
_DETAILS_MAX = 500


def _code_of(error: BaseException) -> StatusCode:
    # Errors of calls that the method itself has made say whether a retry may help. Our other
    # errors (a codec that cannot carry a result) are not the fault of this call's caller.
    if isinstance(error, CallFailure):
        return error.code
    return StatusCode.INTERNAL


def _is_wrong_call(error: BaseException) -> bool:
    """Say whether the arguments do not fit: Python's TypeError before the method's first line."""
    if isinstance(error, PyserveError):
        return False
    last: TracebackType | None = error.__traceback__
    while last is not None and last.tb_next is not None:
        last = last.tb_next
    return (
        isinstance(error, TypeError)
        and last is not None
        and last.tb_frame.f_code.co_filename == calls.__file__
    )
