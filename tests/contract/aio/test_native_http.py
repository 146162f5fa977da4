"""Plain HTTP at the native server, as ``pyserve/_router.pyi`` describes it.

The client speaks HTTP/2 itself and proves the mesh token, as an ingress does.
"""

import hashlib
import hmac
import select
import socket
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import h2.config
import h2.connection
import h2.events
import pytest

from pyserve import _router

_PATIENCE_S = 30.0
_REPLICA_ID = "replica-1"
_TOKEN = b"secret"
_WHOLE_BODY_BYTES_MAX = 1000
_NO_LENGTHS = (b"+5", b"-5", b"5, 5", b"5.0", b"0x5", b"five", b"")

Header = tuple[bytes, bytes]
Event = tuple[int, int, object, object]


@dataclass
class Answer:
    """What came back for one request."""

    headers: dict[bytes, bytes] = field(default_factory=dict)
    body: bytes = b""
    trailers: dict[bytes, bytes] = field(default_factory=dict)
    reset: int | None = None
    ended: bool = False


class Router:
    """A connection that the server trusts."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=_PATIENCE_S)
        config = h2.config.H2Configuration(header_encoding=None)
        self._connection = h2.connection.H2Connection(config)
        self._connection.initiate_connection()
        self._answers: dict[int, Answer] = {}
        nonce = self._ask("/pyserve.mesh/Hello")[b"pyserve-nonce"]
        statement = b"pyserve-proof" + bytes.fromhex(nonce.decode()) + _REPLICA_ID.encode()
        proof = hmac.new(_TOKEN, statement, hashlib.sha256).hexdigest()
        assert (
            b"200"
            == self._ask("/pyserve.mesh/Prove", (b"pyserve-proof", proof.encode()))[b":status"]
        )

    def close(self) -> None:
        self._socket.close()

    def _ask(self, path: str, *headers: Header) -> dict[bytes, bytes]:
        kind = (b"content-type", b"application/grpc")
        return self.answer(self.send_grpc("POST", path, [kind, *headers], b"")).headers

    def send(
        self,
        method: str,
        target: str,
        headers: list[Header],
        body: bytes | None = b"",
        mark: bytes = b"1.1 http 192.0.2.7:5 /app",
    ) -> int:
        """Send a plain HTTP request; without a body (``None``) its end is still to come."""
        return self.send_grpc(method, target, [(b"pyserve-http", mark), *headers], body)

    def send_grpc(self, method: str, target: str, headers: list[Header], body: bytes | None) -> int:
        connection = self._connection
        stream = connection.get_next_available_stream_id()
        head = [(b":method", method.encode()), (b":scheme", b"http"), (b":path", target.encode())]
        head.append((b":authority", b"shop.example"))
        connection.send_headers(stream, [*head, *headers], end_stream=body == b"")
        self._answers[stream] = Answer()
        if body:
            connection.send_data(stream, body, end_stream=True)
        self._socket.sendall(connection.data_to_send())
        return stream

    def send_body(self, stream: int, piece: bytes, is_last: bool) -> None:
        self._connection.send_data(stream, piece, end_stream=is_last)
        self._socket.sendall(self._connection.data_to_send())

    def reset(self, stream: int) -> None:
        self._connection.reset_stream(stream)
        self._socket.sendall(self._connection.data_to_send())

    def head(self, stream: int) -> dict[bytes, bytes]:
        """Read until the answer's head has come."""
        answer = self._answers[stream]
        self._read_until(lambda: answer.headers)
        return answer.headers

    def answer(self, stream: int) -> Answer:
        """Read until the answer is over."""
        answer = self._answers[stream]
        self._read_until(lambda: answer.ended)
        return answer

    def _read_until(self, condition: Callable[[], object]) -> None:
        while not condition():
            received = self._socket.recv(65536)
            assert received, "the server closed the connection"
            for event in self._connection.receive_data(received):
                self._take(event)
            self._socket.sendall(self._connection.data_to_send())

    def _take(self, event: h2.events.Event) -> None:
        match event:
            case h2.events.ResponseReceived(stream_id=stream, headers=headers):
                self._answers[stream].headers = dict(headers)
            case h2.events.DataReceived(stream_id=stream, data=data):
                self._answers[stream].body += data
                length = event.flow_controlled_length
                self._connection.acknowledge_received_data(length, stream)
            case h2.events.TrailersReceived(stream_id=stream, headers=headers):
                self._answers[stream].trailers = dict(headers)
            case h2.events.StreamEnded(stream_id=stream):
                self._answers[stream].ended = True
            case h2.events.StreamReset(stream_id=stream, error_code=code):
                self._answers[stream].reset = int(code)
                self._answers[stream].ended = True


class Host:
    """A server whose events the test takes by hand, and a router that talks to it."""

    def __init__(self) -> None:
        self.endpoint = _router.Endpoint()
        self.server = _router.Server(self.endpoint, replica_id=_REPLICA_ID, token=_TOKEN)
        first = self.server.register("/a.B/C", False, False, 1)
        number = self.server.register_http(whole_body_bytes_max=_WHOLE_BODY_BYTES_MAX)
        assert (0, 1) == (first, number)
        port = self.server.listen_tcp("127.0.0.1:0", None, False)
        self.server.start()
        self._waiting: list[Event] = []
        self.router = Router(port)

    def close(self) -> None:
        self.router.close()
        self.server.stop()
        self.endpoint.close()

    def next(self) -> Event:
        """Wait for an event."""
        end = time.monotonic() + _PATIENCE_S
        while not self._waiting:
            self._waiting = self.endpoint.drain(64)
            if not self._waiting and self.endpoint.arm():
                left_s = end - time.monotonic()
                assert select.select([self.endpoint.fileno()], [], [], max(left_s, 0.0))[0]
        return self._waiting.pop(0)

    def call(self) -> tuple[_router.ServerCall, object]:
        """Wait for a request; returns it with its body, or ``None`` for one in pieces."""
        kind, token, call, body = self.next()
        assert _router.CALL == kind
        assert isinstance(call, _router.ServerCall)
        assert (token, 1) == (call.token, call.method)
        return call, body

    def flush(self, must_flush: bool) -> None:
        if must_flush:
            self.endpoint.flush()

    def settle(self) -> None:
        """Wait until no call is in flight."""
        end = time.monotonic() + _PATIENCE_S
        while self.server.in_flight():
            assert time.monotonic() < end
            time.sleep(0.001)


@pytest.fixture
def host() -> Iterator[Host]:
    """A server and a router, closed after the test."""
    host = Host()
    try:
        yield host
        host.settle()
    finally:
        host.close()


def fields_of(head: _router.HttpHead) -> tuple[object, ...]:
    path, _, query = head.target.partition(b"?")
    connection = (head.version, head.scheme, head.client, head.root_path)
    text = path.decode("latin-1")
    return (head.is_websocket, head.method, text, path, query, *connection, head.headers)


def test_a_head_is_told_as_its_client_sent_it(host: Host) -> None:
    given = [
        (b"cookie", b"a=1"),
        (b"x-list", b"1"),
        (b"cookie", b"b=2"),
        (b"x-list", b"2"),
        (b"x-latin", "ü".encode("latin-1")),
        (b"grpc-timeout", b"9S"),
        (b"pyserve-other", b"x"),
    ]
    stream = host.router.send("PATCH", "/app/x%20y?q=%26", given)
    call, body = host.call()
    head = call.http_head()
    assert ("PATCH", b"/app/x%20y?q=%26") == (head.method, head.target)
    assert ("1.1", "http", "/app") == (head.version, head.scheme, head.root_path)
    assert ("192.0.2.7", 5) == head.client
    assert head.is_websocket is False
    expected = [
        (b"host", b"shop.example"),
        (b"cookie", b"a=1; b=2"),
        (b"x-list", b"1"),
        (b"x-list", b"2"),
        (b"x-latin", b"\xfc"),
    ]
    assert expected == head.headers
    assert fields_of(head) == call.http_fields()
    remaining_s = call.time_remaining()
    assert remaining_s is not None
    assert 0.0 < remaining_s <= 9.0
    assert b"" == body
    host.flush(call.respond(204, [], b""))
    assert b"204" == host.router.answer(stream).headers[b":status"]


@pytest.mark.parametrize(
    ("mark", "version", "client", "root_path"),
    [
        (b"2 https [::1]:6 /", "2", ("::1", 6), ""),
        (b"1.0 https - /a/b", "1.0", None, "/a/b"),
        (b"1.0 https - ", "1.0", None, ""),
    ],
)
def test_a_mark_tells_of_the_connection(
    host: Host, mark: bytes, version: str, client: tuple[str, int] | None, root_path: str
) -> None:
    stream = host.router.send("GET", "/", [(b"pyserve-upgrade", b"websocket")], mark=mark)
    call, body = host.call()
    head = call.http_head()
    assert (version, client, root_path) == (head.version, head.client, head.root_path)
    assert head.is_websocket is True
    assert fields_of(head) == call.http_fields()
    assert body is None
    host.flush(call.respond(403, [], b"no"))
    assert b"403" == host.router.answer(stream).headers[b":status"]


def test_a_whole_answer_gets_a_length_and_keeps_the_order_of_names(host: Host) -> None:
    stream = host.router.send("GET", "/", [])
    call, _ = host.call()
    headers = [(b"Content-Type", b"text/plain"), [b"x-a", b"1"], (b"x-a", b"2")]
    host.flush(call.respond(200, headers, [b"hel", bytearray(b"lo")]))  # type: ignore[arg-type]
    answer = host.router.answer(stream)
    assert b"hello" == answer.body
    assert b"5" == answer.headers[b"content-length"]
    assert (b"text/plain", b"2") == (answer.headers[b"content-type"], answer.headers[b"x-a"])
    # It has no trailers, which would cost another block.
    assert b"pyserve-load" in answer.headers
    assert {} == answer.trailers


def test_headers_of_the_hop_and_of_the_mesh_stay_here(host: Host) -> None:
    stream = host.router.send("GET", "/", [])
    call, _ = host.call()
    names = [b"connection", b"keep-alive", b"transfer-encoding", b"upgrade", b"te", b"trailer"]
    given = [(name, b"x") for name in [*names, b"proxy-connection", b"pyserve-refused"]]
    host.flush(call.respond(200, given, b"x"))
    answer = host.router.answer(stream)
    assert {b":status", b"content-length", b"pyserve-load"} == set(answer.headers)


def test_what_http_does_not_allow_is_refused_where_it_is_said(host: Host) -> None:
    stream = host.router.send("GET", "/", [])
    call, _ = host.call()
    for status in (99, 101, 199, 600, 1000):
        with pytest.raises(ValueError, match=f"status is {status}, use one from 200 to 599"):
            call.respond(status, [], b"")
        with pytest.raises(ValueError, match="from 200 to 599"):
            call.start_response(status, [])
    bad: list[tuple[object, type[Exception], str]] = [
        ([(b"a b", b"x")], ValueError, '"a b" has characters'),
        ([(b"a", b"x\ny")], ValueError, '"a" has a value'),
        ([("a", b"x")], TypeError, "one is of type str"),
        ([(b"a",)], ValueError, "no pair"),
        ([(b"a", b"b", b"c")], ValueError, "no pair"),
        ([(b"content-length", b"4")], ValueError, "content-length is 4 and the body has 5 bytes"),
    ]
    lengths: list[tuple[object, type[Exception], str]] = [
        *(([(b"content-length", text)], ValueError, "digits alone") for text in _NO_LENGTHS),
        ([(b"content-length", b"5"), (b"Content-Length", b"6")], ValueError, "two different"),
    ]
    for headers, kind, text in [*bad, *lengths]:
        with pytest.raises(kind, match=text):
            call.respond(200, headers, b"hello")  # type: ignore[arg-type]
    for headers, kind, text in lengths:
        with pytest.raises(kind, match=text):
            call.start_response(200, headers)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="of type str"):
        call.respond(200, [], "hello")  # type: ignore[arg-type]
    given = [(b"content-length", b" 5"), (b"Content-Length", b"5"), (b"x-a", b"\t v w ")]
    host.flush(call.respond(200, given, b"hello"))
    answer = host.router.answer(stream)
    assert (b"hello", b"5") == (answer.body, answer.headers[b"content-length"])
    # HTTP/2 clients take blanks around a value for an error.
    assert b"v w" == answer.headers[b"x-a"]


def test_an_answer_that_resets_has_no_content(host: Host) -> None:
    """RFC 9110, 15.3.6."""
    for length in ([], [(b"content-length", b"5")]):
        stream = host.router.send("GET", "/", [])
        call, _ = host.call()
        host.flush(call.respond(205, length, b"hello"))
        answer = host.router.answer(stream)
        assert (b"", b"0") == (answer.body, answer.headers[b"content-length"])


def test_bodies_come_whole_when_they_are_announced_and_small(host: Host) -> None:
    sizes = {0: True, 1: True, _WHOLE_BODY_BYTES_MAX: True, _WHOLE_BODY_BYTES_MAX + 1: False}
    for size, is_whole in sizes.items():
        content = bytes(index % 256 for index in range(size))
        length = (b"content-length", str(size).encode())
        stream = host.router.send("POST", "/", [length], content)
        call, body = host.call()
        if is_whole:
            assert content == body
        else:
            assert body is None
            assert (_router.MESSAGE, content) == _kind_and_payload(host.next())
            assert (_router.HALF_CLOSE, None) == _kind_and_payload(host.next())
            host.flush(call.taken(size))
        host.flush(call.respond(200, [], b""))
        assert b"200" == host.router.answer(stream).headers[b":status"]


def _kind_and_payload(event: Event) -> tuple[int, object]:
    return event[0], event[3]


def test_an_answer_in_pieces_while_the_request_comes(host: Host) -> None:
    stream = host.router.send("POST", "/", [], None)
    call, body = host.call()
    assert body is None
    host.flush(call.start_response(200, [(b"x-a", b"b")]))
    for piece in (b"one", b"two"):
        host.router.send_body(stream, piece, is_last=piece == b"two")
        assert (_router.MESSAGE, piece) == _kind_and_payload(host.next())
        host.flush(call.taken(len(piece)))
        host.flush(call.write([piece, b"!"], _router.GZIP))
    assert call.writable() is True
    host.flush(call.finish(0, "", (), None))
    answer = host.router.answer(stream)
    assert (b"one!two!", b"b") == (answer.body, answer.headers[b"x-a"])
    assert b"content-length" not in answer.headers
    assert _router.HALF_CLOSE == host.next()[0]


def test_an_end_with_another_code_is_a_status_or_breaks_the_answer_off(host: Host) -> None:
    not_found, internal = 5, 13
    for has_begun in (False, True):
        stream = host.router.send("GET", "/", [])
        call, _ = host.call()
        if has_begun:
            host.flush(call.start_response(200, []))
            host.flush(call.write([b"begun"], 0))
        host.flush(call.finish(not_found if not has_begun else internal, "nothing here", (), None))
        answer = host.router.answer(stream)
        if has_begun:
            # No reset, which would overtake what was written.
            assert (b"200", b"begun", None) == (
                answer.headers[b":status"],
                answer.body,
                answer.reset,
            )
            assert b"1" == answer.trailers[b"pyserve-broken"]
        else:
            assert (b"404", b"nothing here\n") == (answer.headers[b":status"], answer.body)
            assert b"replica" == answer.headers[b"pyserve-answered-by"]


def test_a_reset_is_a_cancel_and_holds_its_place_until_released(host: Host) -> None:
    stream = host.router.send("GET", "/", [])
    call, _ = host.call()
    host.router.reset(stream)
    kind, token, reason, _ = host.next()
    assert (_router.CANCEL, call.token, _router.CANCEL_CLIENT) == (kind, token, reason)
    assert call.is_active() is False
    assert 1 == host.server.in_flight()
    host.flush(call.release())


def test_a_deadline_is_answered_without_python(host: Host) -> None:
    stream = host.router.send("GET", "/", [(b"grpc-timeout", b"20m")])
    call, _ = host.call()
    assert b"408" == host.router.answer(stream).headers[b":status"]
    assert (_router.CANCEL, _router.CANCEL_DEADLINE) == host.next()[0:3:2]
    host.flush(call.release())


def test_grpc_calls_have_no_http_head(host: Host) -> None:
    grpc_type = (b"content-type", b"application/grpc")
    stream = host.router.send_grpc("POST", "/a.B/C", [grpc_type], b"\0\0\0\0\1x")
    kind, _, call, message = host.next()
    assert (_router.CALL, b"x") == (kind, message)
    assert isinstance(call, _router.ServerCall)
    for answer in (
        call.http_head,
        lambda: call.respond(200, [], b""),
        lambda: call.start_response(200, []),
    ):
        with pytest.raises(RuntimeError, match="gRPC call"):
            answer()
    host.flush(call.reply(b"y"))
    assert b"\0\0\0\0\1y" == host.router.answer(stream).body


def test_a_batcher_tells_the_routers_what_it_does(host: Host) -> None:
    def load() -> list[int]:
        stream = host.router.send("GET", "/", [])
        call, _ = host.call()
        host.flush(call.respond(200, [], b"x"))
        fields = host.router.answer(stream).headers[b"pyserve-load"].split(b";")
        return [int(field) for field in fields if not field.startswith(b"a")]

    assert 3 == len(load())
    host.server.set_batch(
        size_max=8, running=0, busy_s=60.0, window_s=None, step_fixed_s=0.01, step_per_call_s=0.001
    )
    size_max, waiting, busy_us, *rest = load()[3:]
    assert (8, 0, [0, 10_000, 1_000]) == (size_max, waiting, rest)
    assert 50_000_000 < busy_us <= 60_000_000
    host.server.clear_batch()
    assert 3 == len(load())


def test_routers_are_told_of_a_call_that_held_the_loop_from_its_start_to_its_end(
    host: Host,
) -> None:
    """A call that is answered in the turn of the loop in which it came left no room for another."""

    def alone(turns: int) -> bool:
        stream = host.router.send("GET", "/", [])
        call, _ = host.call()
        for _ in range(turns):
            host.endpoint.drain(1)
        host.flush(call.respond(200, [], b"x"))
        fields = host.router.answer(stream).headers[b"pyserve-load"].split(b";")
        return any(field.startswith(b"a") for field in fields)

    assert alone(0)
    assert not alone(1)
