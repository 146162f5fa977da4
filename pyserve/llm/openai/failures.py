"""Errors of Python routes, in the format of OpenAI's API."""

from __future__ import annotations

from typing import Any, Self

from starlette.requests import Request
from starlette.responses import JSONResponse

from pyserve.errors import Abort
from pyserve.llm.openai.calls import error_of
from pyserve.llm.openai_api_models import ErrorInfo, ErrorResponse


class OpenAIHTTPException(Exception):
    """A request that is answered with an error in the shape of OpenAI's API.

    Args:
        status_code: Of HTTP.
        message: What is wrong, and what to send instead.
        type: What kind of error it is.
        param: The field of the request that is meant.
        internal_message: More about it, for the log only.
    """

    def __init__(
        self,
        status_code: int,
        message: str,
        type: str = "invalid_request_error",  # noqa: A002  # As there.
        param: str | None = None,
        internal_message: str | None = None,
    ) -> None:
        super().__init__(message)
        self.status_code = status_code
        self.message = message
        self.type = type
        self.param = param
        self.internal_message = internal_message

    @classmethod
    def of(cls, answer: ErrorResponse) -> Self:
        """Return it for the answer that an engine has given."""
        error = answer.error
        return cls(error.code, error.message, error.type, error.param)

    def response(self) -> JSONResponse:
        """Return the answer."""
        info = ErrorInfo(
            message=self.message, type=self.type, param=self.param, code=self.status_code
        )
        return JSONResponse(ErrorResponse(error=info).model_dump(), self.status_code)


def answer_failures(app: Any) -> None:
    """Let a FastAPI application answer these, refusals of engines and requests that do not fit."""
    from fastapi.exceptions import RequestValidationError

    app.add_exception_handler(OpenAIHTTPException, _answer)
    app.add_exception_handler(Abort, _answer_refused)
    app.add_exception_handler(RequestValidationError, _answer_unfit)


async def _answer(_request: Request, error: Any) -> JSONResponse:
    found: JSONResponse = error.response()
    return found


async def _answer_refused(_request: Request, error: Any) -> JSONResponse:
    return OpenAIHTTPException.of(error_of(error)).response()


async def _answer_unfit(_request: Request, error: Any) -> JSONResponse:
    first = error.errors()[0]
    # The first part says that it is of the body.
    param = ".".join(map(str, first["loc"][1:])) or None
    return OpenAIHTTPException(400, first["msg"], param=param).response()
