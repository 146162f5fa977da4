"""Requests whose end can be read in two ways: never two out of one, never passed on unclear."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pytest

from benchmarks.hostile import http2
from benchmarks.hostile.http2 import Kind, frame, frames_in, greeting

HIDDEN = "GET /plain?note=hidden HTTP/1.1\r\nhost: h\r\n\r\n"
END = "0\r\n\r\n"
CHUNKED = "transfer-encoding: chunked\r\n"
_TIMEOUT_S = 20.0


@dataclass(frozen=True)
class Answer:
    """What came on one connection up to its end."""

    statuses: list[int]
    text: str


def post(headers: str, body: str = "") -> str:
    return f"POST /plain?note=outer HTTP/1.1\r\nhost: h\r\n{headers}\r\n{body}"


@contextmanager
def connected(address: tuple[str, int]) -> Iterator[socket.socket]:
    with socket.create_connection(address, timeout=_TIMEOUT_S) as connection:
        yield connection


def ask(address: tuple[str, int], text: str) -> Answer:
    """Send everything, and read until the mesh closes."""
    received = b""
    with connected(address) as connection:
        connection.sendall(text.encode("latin-1"))
        try:
            while piece := connection.recv(65_536):
                received += piece
        except ConnectionResetError:
            # Closed with something of ours unread; what was answered before has been read.
            pass
    statuses = [int(found) for found in re.findall(rb"^HTTP/1\.1 (\d+)", received, re.MULTILINE)]
    return Answer(statuses, received.decode("latin-1"))


@pytest.fixture
def noted(address: tuple[str, int]):
    """Return what tells the requests that the application has got since the last time."""

    def read() -> list[str]:
        text = ask(
            address, "GET /plain/requests HTTP/1.1\r\nhost: h\r\nconnection: close\r\n\r\n"
        ).text
        return text.partition("\r\n\r\n")[2].splitlines()

    before = len(read())
    return lambda: read()[before:]


@pytest.mark.parametrize(
    "headers",
    [
        "transfer-encoding : chunked\r\n",
        "transfer-encoding: xchunked\r\n",
        "transfer-encoding: identity\r\ncontent-length: 3\r\n",
        "transfer-encoding: chunked\r\ntransfer-encoding: identity\r\n",
        "transfer-encoding: chunked, chunked\r\n",
        "transfer-encoding: chunked, gzip\r\n",
        "transfer-encoding: gzip, chunked\r\n",
        "transfer-encoding: \x0bchunked\r\n",
        "transfer-encoding:\r\n chunked\r\n",
        "x: a\rtransfer-encoding: chunked\r\n",
        "x: a\0b\r\ntransfer-encoding: chunked\r\n",
        "content-length: 0\r\ncontent-length: 45\r\n",
        "content-length: 0, 45\r\n",
        "content-length: 3, 3\r\n",
        "content-length : 3\r\n",
        "content-length: +3\r\n",
        "content-length: -3\r\n",
        "content-length: 0x3\r\n",
        "content-length: 1 3\r\n",
        "content-length: 99999999999999999999\r\n",
        "content-length:\r\n",
        "content-length: \x0b3\r\n",
        "content-length: 3\x0c\r\n",
        "content-length: 3;\r\n",
        "content-length: 3.0\r\n",
        "content-length: 1e1\r\n",
        "content-length: \xb3\r\n",
        f"content-length: {'0' * 80}3\r\n",
        "content-length\t: 3\r\n",
        " content-length: 3\r\n",
        "x: a\r\n content-length: 3\r\n",
        "x: a\r\n\ttransfer-encoding: chunked\r\n",
        "\0content-length: 3\r\n",
        "content-length: 3\r\ncontent-length: 03\r\ncontent-length: 4\r\n",
        "content-length: 5\r\ntransfer-encoding: chunked\r\n",
        f"transfer-encoding: chunked\r\ncontent-length: {len(END + HIDDEN)}\r\n",
        "Content-Length: 0\r\nTransfer-Encoding: chunked\r\n",
        "transfer-encoding: chunked\r\nx: y\r\nCONTENT-LENGTH: 0\r\n",
        "transfer-encoding: chunked\r\ncontent-length: x\r\n",
        "transfer-encoding: chunked;a=b\r\n",
        'transfer-encoding: "chunked"\r\n',
        "transfer-encoding: chunked,\r\n",
        "transfer-encoding: ,chunked\r\n",
        "transfer-encoding: chunked\x0c\r\n",
        "transfer-encoding: \xffchunked\r\n",
        "transfer-encoding:\r\n",
        "transfer_encoding: chunked\r\ntransfer-encoding: x\r\n",
    ],
)
def test_a_body_of_unclear_length_ends_the_connection(headers, address, noted):
    answer = ask(address, post(headers, END + HIDDEN))

    assert answer.statuses in ([400], [501])
    assert [] == noted()


@pytest.mark.parametrize(
    "body",
    [
        "3\nabc\n0\n\n",
        "3;a\nabc\r\n0\r\n\r\n",
        "-3\r\nabc\r\n0\r\n\r\n",
        "0x3\r\nabc\r\n0\r\n\r\n",
        "FFFFFFFFFFFFFFFFF\r\nabc\r\n0\r\n\r\n",
        "10000000000000003\r\nabc\r\n0\r\n\r\n",
        "3\r\nabcXX0\r\n\r\n",
        "3\r\nabcd\r\n0\r\n\r\n",
        "\r\n3\r\nabc\r\n0\r\n\r\n",
        "3 \r\nabc\r\n0\r\n\r\n",
        "3\t\r\nabc\r\n0\r\n\r\n",
        "3 ;a=b\r\nabc\r\n0\r\n\r\n",
        " 3\r\nabc\r\n0\r\n\r\n",
        "+3\r\nabc\r\n0\r\n\r\n",
        "3_\r\nabc\r\n0\r\n\r\n",
        "3 3\r\nabc\r\n0\r\n\r\n",
        ";a=b\r\nabc\r\n0\r\n\r\n",
        f"{'0' * 80}3\r\nabc\r\n0\r\n\r\n",
        "3;a\rb\r\nabc\r\n0\r\n\r\n",
        "3\r\nabc\n0\r\n\r\n",
        "3\r\nabc\r0\r\n\r\n",
        "3\r\nabc\r\n0 \r\n\r\n",
        "3\r\nabc\r\n0\n\r\n",
        "3\r\nabc\r\n0\r\nx: y\n\r\n",
        "3\r\nabc\r\n0\r\n\n",
    ],
)
def test_malformed_chunks_are_answered_and_end_the_connection(body, address, noted):
    answer = ask(address, post(CHUNKED, body + HIDDEN))

    assert [400] == answer.statuses
    assert [] == noted()


@pytest.mark.parametrize(
    ("request_text", "body_bytes"),
    [
        (post("connection: close\r\ncontent-length: 3\r\ncontent-length: 3\r\n", "abc"), 3),
        (post(f"connection: close\r\n{CHUNKED}", "3;a=b\r\nabc\r\n0\r\n\r\n"), 3),
        (post(f"connection: close\r\n{CHUNKED}", f"0\r\ncontent-length: {len(HIDDEN)}\r\n\r\n"), 0),
        (post("connection: close, content-length\r\ncontent-length: 3\r\n", "abc"), 3),
        (post(f"connection: close\r\ncontent-length: {len(HIDDEN)}\r\n", HIDDEN), len(HIDDEN)),
    ],
)
def test_what_is_clear_is_one_request(request_text, body_bytes, address, noted):
    answer = ask(address, request_text)

    assert [200] == answer.statuses
    assert answer.text.endswith(f"\r\n\r\n{body_bytes}")
    assert ["POST note=outer"] == noted()


@pytest.mark.parametrize(
    "request_text",
    [
        post("content-length: 3\r\n", "abc").replace("\r\n", "\n"),
        post("content-length: 3\r\n\n", f"abc{HIDDEN}"),
        post("x: a\ncontent-length: 3\r\n", "abc"),
        post("x: a\ntransfer-encoding: chunked\r\ncontent-length: 45\r\n", END + HIDDEN),
        post("\ncontent-length: 3\r\n", "abc"),
        post("", "").replace(" HTTP/1.1\r\n", " HTTP/1.1\n"),
    ],
)
def test_a_line_feed_alone_ends_no_line_of_a_head(request_text, address, noted):
    """RFC 9112, 2.2 lets a server take it, but not everybody in front of a mesh does."""
    answer = ask(address, request_text)

    assert [400] == answer.statuses
    assert [] == noted()


def test_a_line_feed_alone_is_found_behind_bodies(address, noted):
    good = post("content-length: 4\r\n", "a\n\nb") + post(CHUNKED, "3\r\n\na\n\r\n" + END)
    answer = ask(address, good + HIDDEN.replace("\r\n", "\n"))

    # A body ends without a line end, so the next answer begins in the middle of a line.
    assert ["200", "200", "400"] == re.findall(r"HTTP/1\.1 (\d+)", answer.text)
    assert ["POST note=outer"] * 2 == noted()


def test_the_target_says_the_host_and_two_hosts_are_refused(address, noted):
    close = "connection: close\r\n"
    two = ask(address, f"GET /plain?note=a HTTP/1.1\r\nhost: a\r\nhost: b\r\n{close}\r\n")
    none = ask(address, f"GET /plain?note=b HTTP/1.1\r\n{close}\r\n")
    target = ask(address, f"GET http://a/plain?note=c HTTP/1.1\r\nhost: A\r\n{close}\r\n")

    assert ([400], [400], [200]) == (two.statuses, none.statuses, target.statuses)
    assert ["GET note=c"] == noted()


HOSTS = [
    "a,b",
    "a, b",
    "a b",
    "a\tb",
    "a@b",
    "@a",
    "a:80@b",
    "a:",
    "a:x",
    "a:+80",
    "a:80:81",
    "a:65536",
    ":80",
    "a/b",
    "a?b",
    "a#b",
    "a\\b",
    "a%2eb",
    "a%00",
    "a;b",
    "http://a",
    "*",
    "[::1",
    "[::1]x",
    "[a]",
    "::1",
    "\xe4",
    "a\x7f",
]


@pytest.mark.parametrize("path", ["/plain?note=a", "/services.echo.Echo/Echo", "/-/routes"])
def test_what_is_no_host_is_refused_whatever_is_asked_for(path, address, noted):
    rest = "connection: close\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}"
    for host in HOSTS:
        answer = ask(address, f"POST {path} HTTP/1.1\r\nhost: {host}\r\n{rest}")

        assert [400] == answer.statuses, host
    assert [] == noted()


@pytest.mark.parametrize(
    "line",
    [
        "GET http://b/plain?note=a HTTP/1.1",
        "GET http://h:80/plain?note=a HTTP/1.1",
        "GET http://u@h/plain?note=a HTTP/1.1",
        "GET http://h,b/plain?note=a HTTP/1.1",
        "GET http:///plain?note=a HTTP/1.1",
        "GET http:/plain?note=a HTTP/1.1",
        "GET //b/plain?note=a#c HTTP/1.1",
        "GET /plain?note=a#b HTTP/1.1",
        "GET /plain#?note=a HTTP/1.1",
        "GET  /plain?note=a HTTP/1.1",
        "GET\t/plain?note=a HTTP/1.1",
        "GET /plain?note=a\tHTTP/1.1",
        "GET /plain?note=a b HTTP/1.1",
        "GET /plain?note=a HTTP/1.1 x",
        "GET /plain?note=a\x0b HTTP/1.1",
        "GET /plain?note=a HTTP/1.2",
        "GET /plain?note=a http/1.1",
        "GET /plain?note=a",
        "GET plain?note=a HTTP/1.1",
        " GET /plain?note=a HTTP/1.1",
        "G(T /plain?note=a HTTP/1.1",
        "GET h/plain?note=a HTTP/1.1",
    ],
)
def test_a_target_that_is_read_in_two_ways_is_refused(line, address, noted):
    answer = ask(address, f"{line}\r\nhost: h\r\nconnection: close\r\n\r\n")

    assert answer.statuses in ([400], [505], [404]), answer.text
    assert [] == noted()


@pytest.mark.parametrize("host", ["h", "H.example_1:80", "127.0.0.1:1", "[::1]", "[::1]:65535", ""])
def test_a_name_or_an_address_is_a_host(host, address, noted):
    answer = ask(
        address, f"GET /plain?note=a HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n"
    )

    assert [200] == answer.statuses
    assert ["GET note=a"] == noted()


PATH_OF_HTTP2 = http2.literal(":path", "/plain?note=h2")
PSEUDO = b"\x83\x86" + http2.literal(":authority", "h") + PATH_OF_HTTP2


@pytest.mark.parametrize(
    ("headers", "data"),
    [
        ([("transfer-encoding", "chunked")], b"0\r\n\r\n"),
        ([("connection", "transfer-encoding")], b""),
        ([("te", "chunked")], b""),
        ([("upgrade", "h2c")], b""),
        ([("host", "other")], b""),
        ([("content-length", "0")], HIDDEN.encode()),
        ([("content-length", "100")], b"short"),
        ([("content-length", "5"), ("content-length", "6")], b"short"),
        ([("content-length", "+5")], b"short"),
        ([("content-length", "5, 5")], b"short"),
        ([("content-length", "0x5")], b"short"),
        ([("content-length", "")], b"short"),
        ([("keep-alive", "5")], b""),
        ([("proxy-connection", "close")], b""),
        ([("host", "h"), ("host", "h")], b""),
        ([("x", "a\0b")], b""),
        ([("x", "a\rb")], b""),
        ([("x\0", "a")], b""),
        ([(" x", "a")], b""),
        ([(":authority", "other")], b""),
        ([(":scheme", "https")], b""),
        ([(":unknown", "a")], b""),
        ([("x", "a\r\ntransfer-encoding: chunked")], b""),
        ([("x\r\ny", "a")], b""),
        ([("x:y", "a")], b""),
        ([("X-Upper", "a")], b""),
        ([(":path", "/plain?note=second")], b""),
    ],
)
def test_http2_requests_that_would_be_read_in_two_ways_are_refused(headers, data, address, noted):
    block = PSEUDO + b"".join(http2.literal(*pair) for pair in headers)
    refused(block, data, address)

    assert [] == noted()


@pytest.mark.parametrize("name", [":authority", "host"])
@pytest.mark.parametrize("kind", ["text/plain", "application/grpc-web"])
def test_a_host_of_http2_is_as_clear(name, kind, address, noted):
    for host in HOSTS:
        pairs = [(name, host), ("content-type", kind)]
        block = b"\x83\x86" + PATH_OF_HTTP2 + b"".join(http2.literal(*pair) for pair in pairs)
        refused(block, b"{}", address)

    assert [] == noted()


@pytest.mark.parametrize("headers", [[("host", "other")], [(":authority", "u@h")]])
def test_a_grpc_call_names_one_host_and_no_user(headers, address):
    pairs = [(":authority", "h"), *headers] if headers[0][0] == "host" else headers
    path = http2.literal(":path", "/services.echo.Echo/Echo")
    grpc = b"".join(http2.literal(*pair) for pair in (*pairs, *http2.GRPC))
    refused(b"\x83\x86" + path + grpc, b"\0\0\0\0\0", address)


def refused(block: bytes, data: bytes, address: tuple[str, int]) -> None:
    """Send a request; it has to be answered with 400, or to end its stream or the connection."""
    sent = greeting() + frame(Kind.HEADERS, http2.END_HEADERS, 1, block)
    sent += frame(Kind.DATA, http2.END_STREAM, 1, data)
    with connected(address) as connection:
        connection.sendall(sent + frame(Kind.PING, 0, 0, b"are done"))
        received = b""
        while not _is_over(received):
            piece = connection.recv(65_536)
            if not piece:
                break
            received += piece

    kinds = [kind for kind, _, stream_id, _ in frames_in(received) if stream_id == 1]
    statuses = [payload[:1] for kind, _, _, payload in frames_in(received) if kind == Kind.HEADERS]
    # 8c is `:status: 400`, the only answer that may be one.
    assert kinds[:1] == [Kind.RST_STREAM] or not kinds or statuses == [b"\x8c"], received


def _is_over(received: bytes) -> bool:
    """Whether the stream has ended, or the connection is about to."""
    return any(
        kind in (Kind.RST_STREAM, Kind.GOAWAY)
        or (stream_id == 1 and kind in (Kind.DATA, Kind.HEADERS) and flags & http2.END_STREAM)
        for kind, flags, stream_id, _ in frames_in(received)
    )
