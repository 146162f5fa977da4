"""Runs the handler of plain HTTP requests, and answers for a handler that did not."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import grpc

from pyserve.aio._http import HttpCall, HttpHandler
from pyserve.aio._outcome import LATE_DETAILS, is_late, log_cancellation
from pyserve.aio._watched import note_failure
from pyserve.bridge import end_if_forked, rust
from pyserve.observe.failures import exc_info_of, failure_logger, text_of
from pyserve.request import CURRENT

if TYPE_CHECKING:
    from pyserve.aio._handlers import CallKit
    from pyserve.bridge import CallStarter

_LOGGER = failure_logger(__name__)

_NEUTRAL_DETAILS = "The service raised an exception; its log has the traceback."
_UNANSWERED_DETAILS = "The service did not answer the request."
_CANCELLED_DETAILS = "The handler of the request was cancelled."


@dataclass(frozen=True, eq=False, slots=True)
class HttpFunction:
    """An ``HttpHandler`` that answers with what a coroutine function returns.

    A server runs it with one coroutine less for each request than a handler that awaits the
    function itself.

    Attributes:
        function: Gets one argument.
        prepare: Waits for what ``argument`` wants of a request that has not come whole; ``False``
            when it has answered the request.
        argument: Returns the argument.
        answer: Answers with the result. Returns the rest of the work, to be awaited; ``None`` when
            everything is said.
        answer_failure: Answers with an exception of any of them.
    """

    function: Callable[[Any], Awaitable[Any]]
    prepare: Callable[[HttpCall], Awaitable[bool]]
    argument: Callable[[HttpCall], Any]
    answer: Callable[[HttpCall, Any], Awaitable[None] | None]
    answer_failure: Callable[[HttpCall, Exception], None]

    async def __call__(self, http: HttpCall) -> None:
        """Answer a request; see ``HttpHandler``."""
        try:
            if http.whole_body is None and not await self.prepare(http):
                return
            rest = self.answer(http, await self.function(self.argument(http)))
            if rest is not None:
                await rest
        except Exception as error:
            self.answer_failure(http, error)


_Run = Callable[[HttpCall], Coroutine[Any, Any, None]]


def http_starter(handler: HttpHandler, kit: CallKit) -> CallStarter:
    """Return what starts plain HTTP requests as tasks of ``handler``."""
    receivers = kit.receivers
    spawn = kit.spawn
    run = _run_function(handler) if isinstance(handler, HttpFunction) else _run_handler(handler)

    def start(token: int, call: rust.ServerCall, message: bytes | None) -> None:
        http = HttpCall(token, call, message, kit)
        receivers[token] = http
        task = spawn(run(http))
        if not task.done():  # One that began at once may have ended, and released the request.
            http.task = task

    return start


def _run_handler(handler: HttpHandler) -> _Run:
    set_current = CURRENT.set

    async def run(http: HttpCall) -> None:
        set_current(http)
        try:
            await handler(http)
            if not http.finished and not http.is_over:
                _answer_for_handler(http)
        except BaseException as error:
            _fail(http, error)
        finally:
            http.release()

    return run


def _run_function(each: HttpFunction) -> _Run:
    """Return what ``_run_handler`` would, of both coroutines made one: the hot path."""
    function, prepare, argument = each.function, each.prepare, each.argument
    answer, answer_failure = each.answer, each.answer_failure
    set_current = CURRENT.set

    async def run(http: HttpCall) -> None:
        set_current(http)
        try:
            try:
                if http.whole_body is None and not await prepare(http):
                    return
                rest = answer(http, await function(argument(http)))
                if rest is not None:
                    await rest
            except Exception as error:
                answer_failure(http, error)
            if not http.finished and not http.is_over:
                _answer_for_handler(http)
        except BaseException as error:
            _fail(http, error)
        finally:
            http.release()

    return run


def _answer_for_handler(http: HttpCall) -> None:
    _LOGGER.error("%s returned without an answer's end", _label(http))
    http.fail(grpc.StatusCode.INTERNAL, _UNANSWERED_DETAILS)


def _fail(http: HttpCall, error: BaseException) -> None:
    """End a request whose handler raised.

    Raises:
        BaseException: ``error`` itself when it is to end the process (KeyboardInterrupt, ...),
            unless the server outlives that.
    """
    end_if_forked(error)
    if isinstance(error, asyncio.CancelledError):
        log_cancellation(error, _label(http), http.cancel_reason)
        http.fail(grpc.StatusCode.INTERNAL, _CANCELLED_DETAILS)
        return
    note_failure(http.call, error)
    if http.is_over:
        # Often the consequence of the cancellation: nobody waits for the answer.
        level = logging.DEBUG if http.cancel_reason is not None else logging.ERROR
        _LOGGER.log(level, "%s raised after its end", _label(http), exc_info=exc_info_of(error))
    elif is_late(error, http.time_remaining()):
        _LOGGER.debug("%s ran out of time", _label(http), exc_info=exc_info_of(error))
        http.fail(grpc.StatusCode.DEADLINE_EXCEEDED, LATE_DETAILS)
    else:
        _LOGGER.error(
            "unexpected %s in %s", type(error).__name__, _label(http), exc_info=exc_info_of(error)
        )
        details = _NEUTRAL_DETAILS
        if http.kit.settings.development:
            details = f"{type(error).__name__}: {text_of(error)}"
        http.fail(grpc.StatusCode.INTERNAL, details)
    if not isinstance(error, Exception) and not http.kit.settings.outlives_exits:
        raise error


def _label(http: HttpCall) -> str:
    path = http.head.target.partition(b"?")[0].decode("latin-1")
    return f"{http.head.method} {path}"
