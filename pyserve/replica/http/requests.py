"""Starlette's request, as cheap as what a handler reads of it.

The module imports Starlette; only replicas whose handler takes a request import the module.
"""

from __future__ import annotations

import asyncio
from functools import cached_property
from typing import TYPE_CHECKING, Any

from starlette.datastructures import FormData, Headers
from starlette.formparsers import MultiPartException
from starlette.requests import ClientDisconnect, Request, empty_send

from pyserve.aio import ClientDisconnected
from pyserve.api.handles.inputs import Input
from pyserve.replica.asgi.http import HttpExchange
from pyserve.replica.asgi.scope import http_scope
from pyserve.replica.http.converters import parse_json
from pyserve.replica.http.errors import InvalidForm

if TYPE_CHECKING:
    from starlette.types import Message

    from pyserve.aio import HttpCall
    from pyserve.replica.asgi.scope import Scope


# The keys of a scope that other processes understand.
_PASSED = (
    "type", "asgi", "http_version", "server", "client", "scheme", "method", "root_path", "path",
    "raw_path", "query_string", "headers",
)  # fmt: skip


class PassedRequest(Request):
    """A request that another deployment was called with: its head, and all of its body.

    Its client cannot be watched from there; the call is cancelled when that client leaves.
    """

    def __init__(self, scope: Scope, body: bytes) -> None:
        super().__init__(scope)
        self._body = body

    def __reduce__(self) -> tuple[type[PassedRequest], tuple[Scope, bytes]]:
        return PassedRequest, (self.scope, self._body)

    async def is_disconnected(self) -> bool:
        """Return False: a call whose client has gone is cancelled."""
        return False


class InvalidFormData(InvalidForm, MultiPartException):
    """What ``PlainRequest.form()`` raises; code that catches Starlette's exception gets it too.

    Args:
        message: A sentence for the client.
    """

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


class PlainRequest(Request, Input):
    """A ``starlette.requests.Request`` that makes its scope on first use.

    As an argument of a call it is passed on with its body. ``json()`` raises ``InvalidJson``, a
    ``json.JSONDecodeError``, and ``form()`` raises ``InvalidFormData``: a handler that lets them
    pass is answered with 400.
    """

    # The base class sets these for each request.
    _stream_consumed = False
    _is_disconnected = False
    _form = None
    _send = staticmethod(empty_send)
    _exchange: HttpExchange | None = None

    def __init__(self, http: HttpCall) -> None:
        # Not calling the base class's constructor, which needs the scope now.
        self._http = http

    @cached_property
    def scope(self) -> Scope:  # type: ignore[override]  # an attribute there
        """The ASGI scope."""
        # Behind middlewares there is one already, with what they have added.
        relayed: Scope | None = getattr(self._http, "scope", None)
        return http_scope(self._http, {}) if relayed is None else relayed

    @property
    def method(self) -> str:
        """The method, in upper case."""
        return self._http.head.method

    @property
    def headers(self) -> Headers:
        """The headers; names are compared without regard to case."""
        if not hasattr(self, "_headers"):
            self._headers = Headers(raw=self._http.headers)
        return self._headers

    async def body(self) -> bytes:
        """Return the whole body."""
        if not hasattr(self, "_body"):
            if self._stream_consumed:
                raise RuntimeError("Stream consumed")
            body = self._http.whole_body
            self._body = body if body is not None else await self._read()
        return self._body

    async def json(self) -> Any:
        """Return the body as JSON.

        Raises:
            InvalidJson: It is none.
        """
        if not hasattr(self, "_json"):
            self._json = parse_json(await self.body())
        return self._json

    async def _get_form(self, **limits: Any) -> FormData:
        try:
            return await super()._get_form(**limits)
        except MultiPartException as error:
            raise InvalidFormData(error.message) from error
        except ValueError as error:  # The parser's own; a charset that cannot decode.
            raise InvalidFormData(f"The form cannot be read: {error}") from error

    async def is_disconnected(self) -> bool:
        """Say whether the client has gone, or its deadline has passed."""
        return self._http.cancel_reason is not None

    async def arrive(self) -> None:
        """Wait for the body, for a call with this request.

        Raises:
            ClientDisconnect: The client went before it had sent everything.
        """
        loop = self._http.kit.loop
        if loop is asyncio.get_running_loop():
            await self.body()
        else:  # For a `def`, whose calls have a loop of their own.
            body = asyncio.run_coroutine_threadsafe(self.body(), loop)
            await asyncio.wrap_future(body)

    def lease(self) -> None:
        """Return None: the request is here."""

    def value(self) -> PassedRequest:
        """Return what a call carries of this request."""
        scope = {name: self.scope[name] for name in _PASSED if name in self.scope}
        return PassedRequest(scope, self._body)

    async def _read(self) -> bytes:
        try:
            return await self._http.body()
        except ClientDisconnected:
            raise ClientDisconnect from None

    async def _receive(self) -> Message:
        if self._exchange is None:
            self._exchange = HttpExchange(self._http, self.method)
        return await self._exchange.receive()
