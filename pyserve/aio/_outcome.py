"""Turns what a handler did (returned, raised, was cancelled) into the end of its call.

The one place where exceptions become status codes on the server side.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import grpc

from pyserve.aio._metadata import status_number, to_wire
from pyserve.aio._watched import note_failure
from pyserve.bridge import end_if_forked
from pyserve.observe.failures import exc_info_of, failure_logger, text_of

if TYPE_CHECKING:
    from pyserve.aio._context import ServicerContext

_LOGGER = failure_logger(__name__)
_NEUTRAL_DETAILS = "The service raised an exception; its log has the traceback."
_WRONG_RESPONSE_DETAILS = "The service returned a response of the wrong type."
_CANCELLED_DETAILS = "The handler of the call was cancelled."


class UnreadableRequestError(Exception):
    """A client has sent what the method's deserializer refuses."""


class WrongResponseError(Exception):
    """A handler returned something that its method cannot send."""


def finish_unary(context: ServicerContext, response: Any) -> None:
    """End a call whose handler returned its one response."""
    if context.finished or context.cancel_reason is not None:
        _report_suppressed_abort(context)
        return
    number = status_number(context.code()) if context.code() is not None else 0
    # As in grpc, a response beside a status other than OK is dropped.
    message = context.method.serialize_checked(response) if number == 0 else None
    context.queue_status(number, message)


def finish_stream(context: ServicerContext) -> None:
    """End a call whose handler has written its last response."""
    if context.finished or context.cancel_reason is not None:
        _report_suppressed_abort(context)
        return
    context.queue_status(status_number(context.code()) if context.code() is not None else 0)


def fail(context: ServicerContext, error: BaseException) -> None:
    """End a call whose handler raised.

    Raises:
        BaseException: ``error`` itself when it is to end the process (KeyboardInterrupt, ...),
            unless the server outlives that.
    """
    end_if_forked(error)
    if context.abort_error is not None and error is context.abort_error:
        _report_unawaited_abort(context)
        return
    if isinstance(error, asyncio.CancelledError):
        log_cancellation(error, f"the handler of {context.method.path}", context.cancel_reason)
        if context.cancel_reason is None:
            _end(context, status_number(grpc.StatusCode.CANCELLED), _CANCELLED_DETAILS)
    else:
        _fail_surely(context, error)
    is_exit = not isinstance(error, Exception | asyncio.CancelledError)
    if is_exit and not context.kit.settings.outlives_exits:
        raise error


def log_cancellation(error: asyncio.CancelledError, what: str, reason: int | None) -> None:
    """Log a cancellation; completely, if it came from what the handler itself awaited.

    Args:
        error: What the handler raised.
        what: The handler, for the log.
        reason: Why its call was cancelled; ``None``: it was not.
    """
    try:
        task = asyncio.current_task()
    except RuntimeError:  # A `def` handler, on its thread.
        task = None
    was_raised = error.__traceback__ is not None
    if reason is not None or not was_raised or (task is not None and task.cancelling()):
        _LOGGER.debug("%s was cancelled", what)
    else:
        _LOGGER.error(
            "%s raised CancelledError, though nobody cancelled it: it awaits a task or future that "
            "was cancelled",
            what,
            exc_info=exc_info_of(error),
        )


def _fail_surely(context: ServicerContext, error: BaseException) -> None:
    try:
        _fail_by(context, error)
    except Exception:
        # The status may come from user code. Without an end the client would wait for ever.
        _LOGGER.exception("no status could be sent for %s", context.method.path)
        if not context.finished and context.cancel_reason is None:
            context.set_trailing_metadata(())
            _end(context, status_number(grpc.StatusCode.UNKNOWN), _NEUTRAL_DETAILS)


def _fail_by(context: ServicerContext, error: BaseException) -> None:
    note_failure(context.call, error)
    if isinstance(error, UnreadableRequestError):
        cause = error.__cause__
        if not _end_with_its_own_status(context, error if cause is None else cause):
            # No error of ours, and anybody can send it: the log is not for that.
            _LOGGER.debug("%s", error, exc_info=exc_info_of(cause))
            _end(context, status_number(grpc.StatusCode.INVALID_ARGUMENT), str(error))
    elif isinstance(error, WrongResponseError):
        _LOGGER.error("%s", error, extra={"place": context.method.path})
        _end(context, status_number(grpc.StatusCode.INTERNAL), _WRONG_RESPONSE_DETAILS)
    elif not _end_with_its_own_status(context, error):
        _fail_unexpectedly(context, error)


def release(context: ServicerContext) -> None:
    """Let go of a call whose handler has ended; runs on the loop, after finish or fail."""
    if context.cancel_reason is not None and context.call.release():
        context.kit.flush()
    context.run_done_callbacks()
    if context.request_made is not None:
        context.request_made.end()


def _fail_unexpectedly(context: ServicerContext, error: BaseException) -> None:
    if context.cancel_reason is not None:
        # Often the consequence of the cancellation: nobody waits for the answer.
        _LOGGER.debug(
            "%s raised after its cancellation", context.method.path, exc_info=exc_info_of(error)
        )
        return
    if context.code() is None and is_late(error, context.time_remaining()):
        _LOGGER.debug("%s ran out of time", context.method.path, exc_info=exc_info_of(error))
        _end(context, status_number(grpc.StatusCode.DEADLINE_EXCEEDED), LATE_DETAILS)
        return
    _LOGGER.error(
        "unexpected %s in the handler of %s",
        type(error).__name__,
        context.method.path,
        exc_info=exc_info_of(error),
    )
    number = status_number(context.code()) if context.code() is not None else 0
    # With a status that the handler has set go the details that it has set.
    details = (number and context.details()) or _NEUTRAL_DETAILS
    if context.kit.settings.development:
        details = f"Unexpected {type(error)}: {text_of(error)}"
    _end(context, number or status_number(grpc.StatusCode.UNKNOWN), details)


def _end_with_its_own_status(context: ServicerContext, error: BaseException) -> bool:
    status_of = context.kit.settings.status_of
    try:
        status = None if status_of is None else status_of(error, context)
    except Exception:
        # It reads an exception of the user's, in which anything may raise; the call has to end.
        _LOGGER.exception("no status could be made of %s", type(error).__name__)
        return False
    if status is None:
        return False
    if status.trailing_metadata:
        context.set_trailing_metadata(to_wire(status.trailing_metadata))
    _end(context, status_number(status.code), status.details)
    return True


def _end(context: ServicerContext, number: int, details: str) -> None:
    if not context.finished and context.cancel_reason is None:
        try:
            context.set_details(details)
        except TypeError:  # Attributes of an exception may be anything, and the call has to end.
            _LOGGER.exception("a status for %s has no text", context.method.path)
            context.set_details("")
        context.queue_status(number)


def _report_suppressed_abort(context: ServicerContext) -> None:
    if context.abort_error is not None and not _report_unawaited_abort(context):
        _LOGGER.error(
            "the handler of %s went on after context.abort(): let its exception pass",
            context.method.path,
            extra={"place": context.method.path},
        )


def _report_unawaited_abort(context: ServicerContext) -> bool:
    """Log that a handler has not awaited its abort, if so."""
    abort = context.pending_abort
    if abort is None or not abort.place:
        return False
    _LOGGER.error(
        "the handler of %s called context.abort() without `await` in %s, so it went on, though its "
        "client had the status: write `await context.abort(...)`",
        context.method.path,
        abort.place,
        extra={"place": context.method.path},
    )
    return True


# Errors that say no more than that the deadline of the call itself has passed.

LATE_DETAILS = "The deadline of the call has passed."


def is_late(error: BaseException, remaining_s: float | None) -> bool:
    """Tell whether a handler gave up because its call's deadline has passed.

    A handler often waits for something (a nested call, ``asyncio.timeout``) that has the same
    deadline as its own call. Either may expire first, and the caller must get the same status in
    both cases.

    Args:
        error: What the handler raised.
        remaining_s: What ``time_remaining()`` of its call says.
    """
    if remaining_s != 0:
        return False
    if isinstance(error, grpc.RpcError):
        code = getattr(error, "code", None)
        return callable(code) and code() is grpc.StatusCode.DEADLINE_EXCEEDED
    return isinstance(error, TimeoutError)
