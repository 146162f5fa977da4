"""Runs the handler of plain HTTP requests, and answers for a handler that did not."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

import grpc

from pyserve import _router
from pyserve.aio._http import HttpCall, HttpHandler
from pyserve.request import CURRENT

if TYPE_CHECKING:
    from pyserve.aio._handlers import CallKit
    from pyserve.bridge import CallStarter

_LOGGER = logging.getLogger(__name__)

_NEUTRAL_DETAILS = "The service raised an exception; its log has the traceback."
_UNANSWERED_DETAILS = "The service did not answer the request."
_CANCELLED_DETAILS = "The handler of the request was cancelled."


def http_starter(handler: HttpHandler, kit: CallKit) -> CallStarter:
    """Return what starts plain HTTP requests as tasks of ``handler``."""
    receivers = kit.receivers
    spawn = kit.spawn
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

    def start(token: int, call: _router.ServerCall, message: bytes | None) -> None:
        http = HttpCall(token, call, message, kit)
        receivers[token] = http
        task = spawn(run(http))
        if not task.done():  # One that began at once may have ended, and released the request.
            http.task = task

    return start


def _answer_for_handler(http: HttpCall) -> None:
    _LOGGER.error("%s returned without an answer's end", _label(http))
    http.fail(grpc.StatusCode.INTERNAL, _UNANSWERED_DETAILS)


def _fail(http: HttpCall, error: BaseException) -> None:
    """End a request whose handler raised.

    Raises:
        BaseException: ``error`` itself when it is to end the process (KeyboardInterrupt, ...),
            unless the server outlives that.
    """
    if isinstance(error, asyncio.CancelledError):
        _LOGGER.debug("%s was cancelled", _label(http))
        http.fail(grpc.StatusCode.INTERNAL, _CANCELLED_DETAILS)
        return
    if http.is_over:
        # Often the consequence of the cancellation: nobody waits for the answer.
        level = logging.DEBUG if http.cancel_reason is not None else logging.ERROR
        _LOGGER.log(level, "%s raised after its end", _label(http), exc_info=error)
    else:
        _LOGGER.error("unexpected %s in %s", type(error).__name__, _label(http), exc_info=error)
        details = _NEUTRAL_DETAILS
        if http.kit.settings.development:
            details = f"{type(error).__name__}: {_text(error)}"
        http.fail(grpc.StatusCode.INTERNAL, details)
    if not isinstance(error, Exception) and not http.kit.settings.outlives_exits:
        raise error


def _text(error: BaseException) -> str:
    try:
        return str(error)
    except Exception as broken:
        return f"<its __str__ raised {type(broken).__name__}>"


def _label(http: HttpCall) -> str:
    path = http.head.target.partition(b"?")[0].decode("latin-1")
    return f"{http.head.method} {path}"
