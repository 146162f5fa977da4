"""One call of a method with a message that a person has filled in, through the ingress's JSON door.

It goes the way that every client's call goes: access rules, routing, limits. What it carries and
brings is told to whoever sent it, and kept nowhere.
"""

from __future__ import annotations

import asyncio
import http.client
import json
import re
import ssl
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pyserve.admin.desk import Door
from pyserve.errors import PyserveError, UsageError

_PATH = re.compile(r"/[A-Za-z_][\w.]*/[A-Za-z_]\w*", re.ASCII)
# An answer that is shown on a screen; the rest is cut off.
_ANSWER_BYTES_MAX = 1 << 20
REQUEST_BYTES_MAX = 4 << 20
"""What the ingress takes of a message by default."""

_TIMEOUT_S_MAX = 300.0
# People try one method at a time; a few of them may sit in front of one page.
_TRIES_MAX = 4
# For the way to the ingress and back, after which the call's own time is over.
_MARGIN_S = 2.0
# Of headers, those that say something about the call; others may be of user code.
_SHOWN = ("content-type", "x-request-id", "x-pyserve-explain", "x-pyserve-error")


class TooManyTries(PyserveError):
    """As many calls are under way already as may."""


class DoorClosed(PyserveError):
    """The ingress cannot be reached."""


@dataclass(frozen=True, slots=True)
class Try:
    """What is called, and with what.

    Attributes:
        path: ``/pkg.Service/Method``.
        application: Where several have the method; "": whichever.
        message: The request as JSON.
        timeout_s: Until the call is given up.
        authorization: Header of that name, for access rules; "": none.
    """

    path: str
    application: str
    message: str
    timeout_s: float
    authorization: str

    @classmethod
    def of(cls, body: bytes) -> Try:
        """Read what the page sends.

        Raises:
            UsageError: It cannot be used.
        """
        try:
            given = json.loads(body)
            path, message = given["path"], given["message"]
            application, authorization = (
                given.get("application", ""),
                given.get("authorization", ""),
            )
            timeout_s = float(given.get("timeout_s", 30.0))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise UsageError(f"send path, message and timeout_s as JSON: {error!r}") from None
        texts = (path, message, application, authorization)
        if not all(isinstance(each, str) for each in texts):
            raise UsageError("path, message, application and authorization are texts")
        if not all(each.isprintable() and each.isascii() for each in (application, authorization)):
            raise UsageError("application and authorization are one line of ASCII each")
        if _PATH.fullmatch(path) is None:
            raise UsageError(f"{path!r} is no method; name /package.Service/Method")
        if not 0 < timeout_s <= _TIMEOUT_S_MAX:
            raise UsageError(f"timeout_s={timeout_s:g} is not above 0 and up to {_TIMEOUT_S_MAX:g}")
        return cls(path, application, message, timeout_s, authorization)


class Tries:
    """Calls methods, a few at a time. For one event loop."""

    def __init__(self) -> None:
        self._under_way = 0

    async def call(self, door: Door, wanted: Try) -> dict[str, Any]:
        """Call a method; return its answer as JSON has it.

        Raises:
            TooManyTries: At once.
            DoorClosed: Nothing answers there.
        """
        if self._under_way >= _TRIES_MAX:
            raise TooManyTries(f"{_TRIES_MAX} calls are under way already; wait for one of them")
        self._under_way += 1
        try:
            return await asyncio.to_thread(_call, door, wanted)
        finally:
            self._under_way -= 1


def _call(door: Door, wanted: Try) -> dict[str, Any]:
    started = time.perf_counter()
    connection = _connect(door, wanted.timeout_s + _MARGIN_S)
    try:
        connection.request("POST", wanted.path, wanted.message.encode(), _headers(wanted))
        answer = connection.getresponse()
        body = answer.read(_ANSWER_BYTES_MAX + 1)
    except (OSError, http.client.HTTPException) as error:
        raise DoorClosed(f"the ingress at {door.address} gave no answer: {error!r}") from error
    finally:
        connection.close()
    headers = {name: answer.headers[name] for name in _SHOWN if name in answer.headers}
    return {
        "status": answer.status,
        "took_s": round(time.perf_counter() - started, 6),
        "headers": headers,
        "body": body[:_ANSWER_BYTES_MAX].decode(errors="replace"),
        "is_cut": len(body) > _ANSWER_BYTES_MAX,
    }


def _connect(door: Door, timeout_s: float) -> http.client.HTTPConnection:
    host, _, port = door.address.rpartition(":")
    # A listener on all interfaces is reached by each of them.
    host = {"0.0.0.0": "127.0.0.1", "[::]": "::1"}.get(host, host.strip("[]"))  # noqa: S104
    if not door.speaks_tls:
        return http.client.HTTPConnection(host, int(port), timeout=timeout_s)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    # It is this process's own listener; its certificate names what clients dial.
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return http.client.HTTPSConnection(host, int(port), timeout=timeout_s, context=context)


def _headers(wanted: Try) -> Mapping[str, str]:
    headers = {
        "content-type": "application/json",
        "accept": "application/json",
        "connect-timeout-ms": str(max(1, int(wanted.timeout_s * 1000))),
        "x-pyserve-explain": "1",
    }
    if wanted.application:
        headers["application"] = wanted.application
    if wanted.authorization:
        headers["authorization"] = wanted.authorization
    return headers
