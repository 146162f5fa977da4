"""Turns what a handler did (returned, raised, aborted, was cancelled) into the end of its call.

The one place where exceptions become status codes on the server side.
"""

from __future__ import annotations

import asyncio
import inspect
import sys
from collections.abc import Callable, Coroutine, Generator
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

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


Function = TypeVar("Function", bound=Callable[..., Any])

_CAN_AWAIT = inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR | inspect.CO_ITERABLE_COROUTINE


class PendingAbort(Coroutine[Any, Any, NoReturn]):
    """Raises the error of an abort when it is awaited; what ``context.abort`` returns on a loop.

    A coroutine would do nothing before it is awaited. An abort that nobody awaits would let the
    client take a refused call for a success, so the end of the call is queued at once.

    Attributes:
        place: Where the abort was called, ``file:line``; "" once it has been awaited.
    """

    __slots__ = ("_error", "place")

    def __init__(self, error: grpc.aio.AbortError, place: str) -> None:
        self._error = error
        self.place = place

    def __await__(self) -> Generator[Any, Any, NoReturn]:
        """Raise the error."""
        self.send(None)

    def send(self, _value: Any) -> NoReturn:
        """Raise the error, for a task that was made of this."""
        self.place = ""
        raise self._error

    def throw(self, kind: Any, value: Any = None, traceback: Any = None) -> Any:
        """Raise what a task that was cancelled before its first step throws in."""
        return super().throw(kind, value, traceback)

    def close(self) -> None:
        """Do nothing: the end of the call is queued already."""


def pend(context: ServicerContext, error: grpc.aio.AbortError) -> PendingAbort:
    """Return what the caller of ``context.abort``, which calls this, has to await.

    Raises:
        grpc.aio.AbortError: It cannot await: it is a plain function that an interceptor runs on
            the loop, or one whose caller gets the same error.
    """
    caller = sys._getframe(2)  # noqa: SLF001  # There is no other way to know.
    if not caller.f_code.co_flags & _CAN_AWAIT:
        raise error
    context.pending_abort = PendingAbort(error, f"{caller.f_code.co_filename}:{caller.f_lineno}")
    return context.pending_abort


def counts_as_async(function: Function) -> Function:
    """Mark a function that returns what has to be awaited, as those of grpc.aio are marked.

    CPython 3.11 lets only ``asyncio.iscoroutinefunction`` see that, not the one of ``inspect``.
    """
    if sys.version_info >= (3, 12):
        return inspect.markcoroutinefunction(function)
    vars(function)["_is_coroutine"] = vars(asyncio.coroutines)["_is_coroutine"]
    return function


METHOD_NOT_FOUND = "Method not found!"
"""The details of the status for a method that does not exist, as in grpc.aio."""


async def refuse_strangers(context: Any) -> None:
    """Go on for callers that have proven to belong to the mesh.

    Args:
        context: Of a call that a ``Server`` of this package handles.

    Raises:
        grpc.aio.AbortError: It is another caller, who learns nothing.
    """
    if not context.call.trusted:
        await context.abort(grpc.StatusCode.UNIMPLEMENTED, METHOD_NOT_FOUND)
