"""Answers with a file: its headers, conditions and ranges (RFC 9110, 13 and 14)."""

from __future__ import annotations

import asyncio
import mimetypes
import os
import re
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import formatdate, parsedate_to_datetime
from typing import TYPE_CHECKING
from urllib.parse import quote

from pyserve.aio import ClientDisconnected
from pyserve.aio.internal import BrokenFile, note_failure
from pyserve.bridge import open_file
from pyserve.observe.failures import failure_logger
from pyserve.replica.asgi.http import FAILURE_BODY, FAILURE_HEADERS

if TYPE_CHECKING:
    from pyserve.aio import HttpCall
    from pyserve.api.files import File
    from pyserve.bridge import OpenFile

_LOGGER = failure_logger(__name__)

_NS_PER_S = 1_000_000_000
_NO_BODY = frozenset({b"content-type", b"content-disposition"})
# One range; longer numbers than that are not lengths of files.
_RANGE = re.compile(rb"bytes=[ \t]*([0-9]{0,18})-([0-9]{0,18})[ \t]*", re.IGNORECASE)


async def send_file(http: HttpCall, answer: File) -> None:
    """Answer with a file, a part of it, or the word that the client has it already.

    A file that cannot be opened is answered with 500; its path is logged and not sent.
    """
    path = os.fspath(answer.path)
    try:
        # On a thread: a file system of the network may let it wait.
        file = await asyncio.to_thread(open_file, path)
    except (OSError, ValueError) as error:
        _note(http, path, error, str(error.args[-1]))
        http.respond(500, FAILURE_HEADERS, b"" if http.head.method == "HEAD" else FAILURE_BODY)
        return
    part = _part(http, _headers(answer, path, file), file.size_bytes)
    headers = list(part.headers.items())
    if part.length == 0 or http.head.method == "HEAD":
        file.close()
        http.respond(part.status, headers, b"")
        return
    http.start(part.status, headers)
    try:
        await http.send_file(file, part.offset, part.length, path)
    except ClientDisconnected:
        pass
    except BrokenFile as error:
        _note(http, path, error, error.reason)
        http.abort()
        return
    http.end()


def _note(http: HttpCall, path: str, error: Exception, reason: str) -> None:
    note_failure(http.call, error)
    target = http.head.target.partition(b"?")[0].decode("latin-1")
    _LOGGER.error("%s %s: %r was not sent: %s", http.head.method, target, path, reason)


def _headers(answer: File, path: str, file: OpenFile) -> dict[bytes, bytes]:
    found = {
        b"content-type": (answer.media_type or _guess(answer.filename or path)).encode("latin-1"),
        b"last-modified": formatdate(file.modified_ns // _NS_PER_S, usegmt=True).encode(),
        b"etag": b'"%x-%x"' % (file.modified_ns, file.size_bytes),
        b"accept-ranges": b"bytes",
    }
    if answer.filename is not None:
        found[b"content-disposition"] = _attachment(answer.filename)
    for name, value in answer.headers.items():
        found[name.lower().encode("latin-1")] = value.encode("latin-1")
    return found


def _guess(path: str) -> str:
    kind, encoding = mimetypes.guess_type(path)
    if kind is None or encoding is not None:  # What is compressed is not the text in it.
        return "application/octet-stream"
    return f"{kind}; charset=utf-8" if kind.startswith("text/") else kind


def _attachment(name: str) -> bytes:
    quoted = quote(name, safe="")
    if quoted == name:
        return b'attachment; filename="%s"' % name.encode()
    return b"attachment; filename*=utf-8''%s" % quoted.encode()


# --- what of the file is sent -----------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Part:
    status: int
    headers: dict[bytes, bytes]
    offset: int = 0
    length: int = 0


def _part(http: HttpCall, headers: dict[bytes, bytes], size_bytes: int) -> _Part:
    """Return what of the file answers a request; ``headers`` are those of all of it."""
    method = http.head.method
    match = http.header(b"if-match")
    if match is not None and not _names(match, headers[b"etag"], is_weak=False):
        return _Part(412, {b"content-length": b"0"})
    if method in {"GET", "HEAD"} and _is_known(http, headers):
        return _Part(304, {name: value for name, value in headers.items() if name not in _NO_BODY})
    # With other methods a range is ignored (RFC 9110, 14.2).
    wish = http.header(b"range") if method == "GET" and _may_be_part(http, headers) else None
    asked = None if wish is None else _range(wish, size_bytes)
    if asked is None:
        return _Part(200, headers | {b"content-length": b"%d" % size_bytes}, 0, size_bytes)
    begin, end = asked
    if begin >= end:
        unknown = {b"content-range": b"bytes */%d" % size_bytes, b"content-length": b"0"}
        return _Part(416, unknown)
    headers[b"content-range"] = b"bytes %d-%d/%d" % (begin, end - 1, size_bytes)
    headers[b"content-length"] = b"%d" % (end - begin)
    return _Part(206, headers, begin, end - begin)


def _is_known(http: HttpCall, headers: dict[bytes, bytes]) -> bool:
    """Return whether the client has this version (RFC 9110, 13.1.2 and 13.1.3)."""
    if (tags := http.header(b"if-none-match")) is not None:
        return _names(tags, headers[b"etag"], is_weak=True)
    since, modified = _time(http.header(b"if-modified-since")), _time(headers[b"last-modified"])
    return since is not None and modified is not None and modified <= since


def _names(tags: bytes, own: bytes, *, is_weak: bool) -> bool:
    """Return whether a list of entity tags has the file's own.

    Args:
        tags: As a condition has them.
        own: The file's.
        is_weak: Compare as RFC 9110, 8.8.3.2 does for equivalent contents, not for equal bytes.
    """
    if tags.strip() == b"*":
        return True
    if is_weak:
        own = own.removeprefix(b"W/")
    elif own.startswith(b"W/"):
        return False
    found = (tag.strip() for tag in tags.split(b","))
    return any(own == (tag.removeprefix(b"W/") if is_weak else tag) for tag in found)


def _may_be_part(http: HttpCall, headers: dict[bytes, bytes]) -> bool:
    """Return whether the client has the other parts of this version (RFC 9110, 13.1.5)."""
    validator = http.header(b"if-range")
    if validator is None:
        return True
    if validator == headers[b"last-modified"]:
        return True
    return _names(validator, headers[b"etag"], is_weak=False) and validator.strip() != b"*"


def _time(value: bytes | None) -> datetime | None:
    """Return a date of HTTP; ``None`` for anything else, which is to be ignored."""
    if value is None:
        return None
    try:
        found = parsedate_to_datetime(value.decode("latin-1"))
    except (ValueError, IndexError, TypeError):
        return None
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)


def _range(wish: bytes, size_bytes: int) -> tuple[int, int] | None:
    """Return begin and end of a range; an empty one if there is nothing of it.

    ``None``: all is sent, since it is not understood, or is several (RFC 9110, 14.2).
    """
    found = _RANGE.fullmatch(wish)
    if found is None:
        return None
    first, last = found[1], found[2]
    if not first:
        return (max(size_bytes - int(last), 0), size_bytes) if last else None
    begin = int(first)
    if not last:
        return begin, size_bytes
    if int(last) < begin:
        return None
    return begin, min(int(last) + 1, size_bytes)
