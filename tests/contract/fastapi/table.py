"""The table of requests: each one is sent to both servers."""

from __future__ import annotations

import json
from typing import Any

from tests.contract.fastapi.exchange import Asked

_FORM = ("content-type", "application/x-www-form-urlencoded")
_JSON = ("content-type", "application/json")
_ORIGIN = ("origin", "https://friend.example")
_ITEM = {"name": "Foo", "price": 42.5, "tags": [{"name": "a"}, {"name": "b"}]}
_BOUNDARY = "x-boundary-x"


def _get(path: str, *headers: tuple[str, str]) -> Asked:
    return Asked("GET", path, headers)


def _json(method: str, path: str, value: Any, *headers: tuple[str, str]) -> Asked:
    return Asked(method, path, [_JSON, *headers], json.dumps(value).encode())


def _part(name: str, value: bytes, extra: str = "") -> bytes:
    head = f'--{_BOUNDARY}\r\nContent-Disposition: form-data; name="{name}"{extra}\r\n\r\n'
    return head.encode() + value + b"\r\n"


def _file(name: str, file_name: str, value: bytes) -> bytes:
    extra = f'; filename="{file_name}"\r\nContent-Type: text/x-test'
    return _part(name, value, extra)


def _multipart(*parts: bytes) -> bytes:
    return b"".join(parts) + f"--{_BOUNDARY}--\r\n".encode()


_MULTIPART = ("content-type", f"multipart/form-data; boundary={_BOUNDARY}")
_FILES = _multipart(
    _part("note", "größe".encode()),
    _file("first", "a.txt", b"first file"),
    _file("others", "b.bin", bytes(range(256)) * 10),
    _file("others", "c.bin", b"z" * 1_500_000),  # Starlette keeps up to 1 MiB in memory.
)
_LARGE = bytes(range(256)) * 8192  # 2 MiB: many windows of flow control.

CASES = {
    # --- parameters ---------------------------------------------------------------------
    "path parameter": _get("/items/7"),
    "path parameter that is wrong": _get("/items/zero"),
    "path parameter out of range": _get("/items/0"),
    "query parameters": _get("/items/7?q=a%20b%2Bc&short=yes"),
    "query that is not text": _get("/items/7?q=%FF%FE"),
    "enumeration": _get("/colours/red"),
    "enumeration without that value": _get("/colours/blue"),
    "path in a path": _get("/files/a/b%2Fc/d%20e.txt"),
    "path that is not ASCII": _get("/files/gr%C3%B6%C3%9Fe"),
    "dates and UUIDs": _get("/when/2026-01-02T03:04:05/12345678-1234-5678-1234-567812345678"),
    "lists in queries": _get("/queries?tag=a&tag=b&limit=5&pattern=aaa"),
    "several mistakes in one query": _get("/queries?limit=0&pattern=b&tag=1&tag=2&tag=3&tag=4"),
    "header parameters": _get("/header-values", ("user-agent", "t"), ("x-token", "a")),
    "duplicate header parameters": _get("/header-values", ("x-token", "a"), ("x-token", "b")),
    "headers as they were sent": _get("/headers", ("X-Mixed", "Case"), ("x-e", "1"), ("x-e", "2")),
    "cookies": _get("/cookies", ("cookie", "session=abc; theme=light")),
    "no cookies": _get("/cookies"),
    # --- dependencies -------------------------------------------------------------------
    "dependencies, with yield and as a class": _get("/dependencies?n=4&skip=2"),
    "dependency that fails": _get("/guarded"),
    "dependency that refuses": _get("/guarded", ("x-key", "wrong")),
    "dependency that lets in": _get("/guarded", ("x-key", "right")),
    "basic authentication": _get("/basic", ("authorization", "Basic YW5uOnB3")),
    "no basic authentication": _get("/basic"),
    "bearer token": _get("/bearer", ("authorization", "Bearer abc")),
    "no bearer token": _get("/bearer"),
    # --- bodies -------------------------------------------------------------------------
    "JSON body": _json("POST", "/items", _ITEM),
    "JSON body in chunks": Asked(
        "POST", "/items", [_JSON], pieces=[b'{"name": "x",', b'"price": 1}']
    ),
    "JSON body that is broken": Asked("POST", "/items", [_JSON], b'{"name": '),
    "JSON body that is wrong": _json("POST", "/items", {"name": 1, "price": -1}),
    "JSON body without its type": Asked("POST", "/items", (), b'{"name": "x", "price": 1}'),
    "no body where one is needed": Asked("POST", "/items"),
    "response model": _json("PUT", "/items/3", _ITEM),
    "several bodies": _json(
        "PATCH", "/several", {"item": _ITEM, "importance": 3, "tag": {"name": "t"}}
    ),
    "form": Asked("POST", "/form", [_FORM], b"name=J%C3%BCrgen&age=5"),
    "form with a mistake": Asked("POST", "/form", [_FORM], b"age=old"),
    "files": Asked("POST", "/files", [_MULTIPART], _FILES),
    "files in chunks": Asked(
        "POST", "/files", [_MULTIPART], pieces=[_FILES[:100], _FILES[100:70_000], _FILES[70_000:]]
    ),
    "files that end too early": Asked("POST", "/files", [_MULTIPART], _FILES[:200]),
    "raw body": Asked("POST", "/raw", (), b"\x00\x01\x02"),
    "large body": Asked("POST", "/raw", (), _LARGE),
    "large body in pieces": Asked("POST", "/pieces", (), pieces=[_LARGE] * 3),
    "body that is exactly what arrives whole": Asked("POST", "/raw", (), b"x" * 65536),
    "body that is one byte more": Asked("POST", "/raw", (), b"x" * 65537),
    "small body that nobody reads": Asked("POST", "/unread", (), b"x" * 1000),
    "empty chunked body": Asked("POST", "/raw", pieces=[]),
    "body of a GET": Asked("GET", "/items/7", (), b"abc"),
    "DELETE": Asked("DELETE", "/items/3"),
    # --- answers ------------------------------------------------------------------------
    "HTML": _get("/html"),
    "text": _get("/text"),
    "HEAD": Asked("HEAD", "/text"),
    "HEAD of what has no HEAD": Asked("HEAD", "/html"),
    "HEAD of a stream": Asked("HEAD", "/stream/numbers"),
    "HEAD of a file": Asked("HEAD", "/file"),
    "status and headers": _get("/json"),
    "no bytes": _get("/bytes/0"),
    "many bytes": _get("/bytes/3000000"),
    "204": _get("/empty/204"),
    "304": _get("/empty/304"),
    "200 without a body": _get("/empty/200"),
    "redirect": _get("/redirect"),
    "redirect to the slash": _get("/items/7/?q=1"),
    "duplicate headers": _get("/duplicates"),
    "file": _get("/file"),
    "range of a file": _get("/file", ("range", "bytes=6-9")),
    "ranges of a file out of it": _get("/file", ("range", "bytes=600-")),
    "stream from a thread": _get("/stream/lines"),
    "stream": _get("/stream/numbers"),
    "stream of a megabyte": _get("/stream/large"),
    "stream with a length": _get("/stream/length"),
    "stream of JSON lines": _get("/stream/json"),
    "server-sent events": _get("/events"),
    "GZip": _get("/compressible", ("accept-encoding", "gzip")),
    "GZip that was not asked for": _get("/compressible"),
    "GZip of a stream": _get("/stream/large", ("accept-encoding", "gzip")),
    # --- failures -----------------------------------------------------------------------
    "unknown route": _get("/nowhere"),
    "wrong method": Asked("POST", "/text"),
    "unusual method": Asked("PROPFIND", "/text"),
    "HTTPException": _get("/errors/http"),
    "exception with a handler": _get("/errors/key"),
    "exception without a handler": _get("/errors/unexpected"),
    "answer that does not fit its model": _get("/errors/invalid-answer"),
    "exception in a stream": _get("/errors/while-streaming"),
    # --- middleware, mounts, documents ---------------------------------------------------
    "CORS": _get("/text", _ORIGIN),
    "CORS of a stranger": _get("/text", ("origin", "https://stranger.example")),
    "CORS preflight": Asked(
        "OPTIONS",
        "/text",
        [_ORIGIN, ("access-control-request-method", "PUT")],
    ),
    "CORS preflight that is refused": Asked(
        "OPTIONS",
        "/text",
        [_ORIGIN, ("access-control-request-method", "DELETE")],
    ),
    "OPTIONS without CORS": Asked("OPTIONS", "/text"),
    "state of the lifespan": _get("/state"),
    "scope": _get("/scope?a=%20b&c"),
    "scope with another host": Asked("GET", "/scope", host="other.example:8443"),
    "scope of a mount": _get("/inner/scope/a%20b"),
    "root of a mount": _get("/inner/"),
    "mount without its slash": _get("/inner"),
    "documents of a mount": _get("/inner/openapi.json"),
    "stream behind a middleware of functions": _get("/inner/stream/large"),
    "broken stream behind a middleware of functions": _get("/inner/errors/while-streaming"),
    "body behind a middleware of functions": Asked("POST", "/inner/raw", (), _LARGE),
    "failure behind a middleware of functions": _get("/inner/errors/unexpected"),
    "static file": _get("/static/words.txt"),
    "static file that is known": _get("/static/words.txt", ("if-none-match", '"no"')),
    "static page": _get("/static/"),
    "no static file": _get("/static/nothing.txt"),
    "outside of the static files": _get("/static/../application.py"),
    "OpenAPI": _get("/openapi.json"),
    "documents": _get("/docs"),
    "other documents": _get("/redoc"),
    "doubled slash": _get("//text"),
    "dots in the path": _get("/files/a/../b"),
}
