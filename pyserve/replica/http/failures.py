"""Makes the answer from a handler's exception; the counterpart of ``plain.failures`` for HTTP."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from grpc import StatusCode

from pyserve.aio import ClientDisconnected
from pyserve.aio._outcome import LATE_DETAILS, is_late
from pyserve.aio._watched import note_failure
from pyserve.bridge import end_if_forked
from pyserve.errors import Abort, BatchError, ModelNotFound
from pyserve.observe.failures import exc_info_of, failure_logger
from pyserve.observe.places import text_of
from pyserve.replica.asgi.http import BODILESS
from pyserve.replica.http.errors import InvalidBody, InvalidJson
from pyserve.replica.http.values import JSON, TEXT, to_json
from pyserve.replica.refusals import refusal_of

if TYPE_CHECKING:
    from pyserve.aio import HttpCall, HttpHeaders

_LOGGER = failure_logger(__name__)
_NEUTRAL_DETAILS = "The deployment raised an exception; its log has the traceback."
_DETAILS_MAX = 500
# Word for word what Ray Serve and Starlette answer; ours goes into the header.
_INTERNAL = b"Internal Server Error"
_ERROR = b"x-pyserve-error"


def answer_failure(http: HttpCall, error: Exception) -> None:
    """Answer a request whose handler raised; log unexpected exceptions.

    An answer that has begun is broken off.
    """
    end_if_forked(error)
    if http.cancel_reason is not None or isinstance(error, ClientDisconnected):
        # Often because the client has left, so the answer is not needed.
        _LOGGER.debug("%s raised after its client left", _path(http), exc_info=exc_info_of(error))
    elif http.started or not _may_answer(http, error):
        _answer_unexpected(http, error)


def _may_answer(http: HttpCall, error: Exception) -> bool:
    """As ``_answer_expected``; what an error says may be nothing that can be sent."""
    try:
        return _answer_expected(http, error)
    except (TypeError, ValueError) as wrong:  # UnicodeError is one.
        _LOGGER.error(
            "%s in %s cannot be answered with: %s", type(error).__name__, _path(http), wrong
        )
        return False


def _answer_expected(http: HttpCall, error: Exception) -> bool:
    """Answer with the error's own status and text, if it has them."""
    if isinstance(error, Abort):
        http.fail(error.code, error.details, error.trailing_metadata)
    elif isinstance(error, ModelNotFound):
        http.fail(error.code, str(error))
    elif isinstance(error, InvalidJson):
        text = (
            f"The body is not JSON: {error}" if error.doc else f"The body is not JSON: {error.msg}"
        )
        http.respond(400, JSON, to_json({"detail": text}))
    elif isinstance(error, InvalidBody):
        http.respond(422, JSON, to_json({"detail": error.errors}))
    elif isinstance(error, BatchError) and error.code is StatusCode.INVALID_ARGUMENT:
        http.respond(400, JSON, to_json({"detail": str(error)}))
    elif (starlette := sys.modules.get("starlette.exceptions")) is not None and isinstance(
        error, starlette.HTTPException
    ):
        _answer_http_exception(http, error)
    else:
        return False
    return True


def _answer_http_exception(http: HttpCall, error: Any) -> None:
    headers = [
        (name.lower().encode("latin-1"), value.encode("latin-1"))
        for name, value in (error.headers or {}).items()
    ]
    if error.status_code in BODILESS:
        http.respond(error.status_code, headers, b"")
    elif type(error).__module__.startswith("starlette.") and isinstance(error.detail, str):
        http.respond(error.status_code, [*_type(TEXT, headers), *headers], error.detail.encode())
    else:  # FastAPI's, whose detail is any JSON.
        detail = to_json({"detail": error.detail})
        http.respond(error.status_code, [*_type(JSON, headers), *headers], detail)


def _type(default: HttpHeaders, headers: HttpHeaders) -> HttpHeaders:
    """Return the default of a content-type, unless the exception has one."""
    return () if any(name == b"content-type" for name, _ in headers) else default


def _answer_unexpected(http: HttpCall, error: Exception) -> None:
    note_failure(http.call, error)
    if is_late(error, http.time_remaining()):
        _LOGGER.debug("%s ran out of time", _path(http), exc_info=exc_info_of(error))
        http.fail(StatusCode.DEADLINE_EXCEEDED, LATE_DETAILS)
        return
    _LOGGER.error(
        "unexpected %s in %s", type(error).__name__, _path(http), exc_info=exc_info_of(error)
    )
    details = _NEUTRAL_DETAILS
    if http.kit.settings.development:
        details = f"{type(error).__name__}: {text_of(error)}"[:_DETAILS_MAX]
    refusal = refusal_of(error)
    if http.started:
        http.fail(StatusCode.INTERNAL, details)
    elif refusal is None:
        http.respond(500, [*TEXT, (_ERROR, _as_header(details))], _INTERNAL)
    else:
        text = refusal.body if details is _NEUTRAL_DETAILS else f"{details}\n".encode()
        http.respond(refusal.status, refusal.headers(), text)


def _as_header(text: str) -> bytes:
    """Return a text as a header may have it: in one line, of ASCII."""
    line = "".join(each if each.isprintable() else " " for each in text)
    return line.strip().encode("ascii", "backslashreplace")[:_DETAILS_MAX]


def _path(http: HttpCall) -> str:
    return f"{http.head.method} {http.head.target.partition(b'?')[0].decode('latin-1')}"
