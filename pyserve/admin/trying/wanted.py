"""Reads the requested call from a request of the page. Pure."""

from __future__ import annotations

import base64
import json
import re
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pyserve.aio.internal import CONNECTION_HEADERS
from pyserve.errors import UsageError

REQUEST_BYTES_MAX = 8 << 20
"""Of what the page sends: the ingress takes 4 MiB of a message, which JSON may carry as base64."""
_METHOD = re.compile(r"/[A-Za-z_][\w.]*/[A-Za-z_]\w*", re.ASCII)
_TARGET = re.compile(r"/[!-~]*", re.ASCII)
_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+", re.ASCII)
_VERBS = frozenset({"GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS"})
_TIMEOUT_S_MAX = 300.0
# Of the connection, which is this process's own.
_REFUSED = CONNECTION_HEADERS | {"host", "trailer", "expect"}


@dataclass(frozen=True, slots=True)
class Wanted:
    """One call.

    Attributes:
        verb: Of HTTP.
        target: Path and query.
        headers: What goes with it.
        body: All of it, or the messages that are there from the start.
        is_stream: Messages and answers are in Connect's envelopes.
        has_more: More messages come until the page ends them.
        timeout_s: Until the call is given up.
    """

    verb: str
    target: str
    headers: tuple[tuple[str, str], ...]
    body: bytes
    timeout_s: float
    is_stream: bool = False
    has_more: bool = False


def wanted_of(body: bytes) -> Wanted:
    """Read what the page sends.

    Raises:
        UsageError: It cannot be used.
    """
    try:
        given = json.loads(body)
        kind = given["kind"]
        timeout_s = float(given.get("timeout_s", 30.0))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise UsageError(f"send kind, path and timeout_s as JSON: {error!r}") from None
    if not 0 < timeout_s <= _TIMEOUT_S_MAX:
        raise UsageError(f"timeout_s={timeout_s:g} is not above 0 and up to {_TIMEOUT_S_MAX:g}")
    read = {"rpc": _rpc, "http": _http}.get(kind) if isinstance(kind, str) else None
    if read is None:
        raise UsageError(f"kind={kind!r} is neither rpc nor http")
    try:
        return read(given, timeout_s)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise UsageError(f"what is sent for {kind} cannot be used: {error!r}") from None


def message_of(body: bytes) -> bytes:
    """Read one more message of a call that has begun; return it in its envelope.

    Raises:
        UsageError: It cannot be used.
    """
    try:
        return envelope(MESSAGE, _text(json.loads(body), "message").encode())
    except (KeyError, ValueError, TypeError, RecursionError) as error:
        raise UsageError(f"send message as JSON: {error!r}") from None


def _rpc(given: Mapping[str, Any], timeout_s: float) -> Wanted:
    path, messages = _text(given, "path"), given["messages"]
    is_stream = bool(given.get("is_stream"))
    if _METHOD.fullmatch(path) is None:
        raise UsageError(f"{path!r} is no method; name /package.Service/Method")
    if not isinstance(messages, list) or not all(isinstance(each, str) for each in messages):
        raise UsageError("messages are a list of texts, each of them JSON")
    if not is_stream and len(messages) != 1:
        raise UsageError(f"{path} is called with one message, not {len(messages)}")
    subtype = "connect+json" if is_stream else "json"
    headers = {
        "content-type": f"application/{subtype}",
        "connect-timeout-ms": str(max(1, int(timeout_s * 1000))),
        "application": _line(given, "application"),
        "authorization": _line(given, "authorization"),
    }
    encoded = [each.encode() for each in messages]
    return Wanted(
        verb="POST",
        target=path,
        headers=_with_explanation(headers),
        body=b"".join(envelope(MESSAGE, each) for each in encoded) if is_stream else encoded[0],
        timeout_s=timeout_s,
        is_stream=is_stream,
        has_more=is_stream and bool(given.get("has_more")),
    )


def _http(given: Mapping[str, Any], timeout_s: float) -> Wanted:
    verb, target = _text(given, "verb"), _text(given, "path")
    if verb not in _VERBS:
        raise UsageError(f"{verb!r} is none of {', '.join(sorted(_VERBS))}")
    if _TARGET.fullmatch(target) is None:
        raise UsageError(f"{target!r} is no path; it begins with a slash and is percent-encoded")
    headers = {str(name).lower(): _line(given["headers"], name) for name in given["headers"]}
    for name in headers:
        if _NAME.fullmatch(name) is None or name in _REFUSED:
            raise UsageError(f"the header {name!r} cannot be sent from here")
    headers["authorization"] = headers.get("authorization") or _line(given, "authorization")
    headers["x-request-timeout-seconds"] = f"{timeout_s:g}"
    return Wanted(
        verb=verb,
        target=target,
        headers=_with_explanation(headers),
        body=base64.b64decode(given.get("body", ""), validate=True),
        timeout_s=timeout_s,
    )


def _with_explanation(headers: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    kept = {name: value for name, value in headers.items() if value}
    return tuple({**kept, "x-pyserve-explain": "1"}.items())


def _text(given: Mapping[str, Any], name: str) -> str:
    value = given[name]
    if not isinstance(value, str):
        raise UsageError(f"{name} is a text")
    return value


def _line(given: Mapping[str, Any], name: str) -> str:
    value = given.get(name, "")
    if not isinstance(value, str) or not (value.isprintable() and value.isascii()):
        raise UsageError(f"{name} is one line of ASCII")
    return value


# Connect's envelopes of streams (connectrpc.com/docs/protocol): flags, length, message.

MESSAGE, END = 0, 2
"""Flags: a message as it is, and how the stream has ended. Compression is not asked for."""
_HEAD = struct.Struct(">BI")


def envelope(flags: int, content: bytes) -> bytes:
    """Return a message in its envelope."""
    return _HEAD.pack(flags, len(content)) + content


class Envelopes:
    """Takes a stream apart as it comes."""

    def __init__(self) -> None:
        self._rest = bytearray()

    def feed(self, data: bytes) -> list[tuple[int, bytes]]:
        """Add what has come; return flags and content of each envelope that is whole now."""
        self._rest += data
        found: list[tuple[int, bytes]] = []
        while len(self._rest) >= _HEAD.size:
            flags, length = _HEAD.unpack_from(self._rest)
            end = _HEAD.size + length
            if len(self._rest) < end:
                break
            found.append((flags, bytes(self._rest[_HEAD.size : end])))
            del self._rest[:end]
        return found
