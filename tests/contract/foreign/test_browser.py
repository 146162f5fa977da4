"""Connect and gRPC-Web clients of a page, from the mesh's own origin and from another one."""

from __future__ import annotations

import base64
import functools
import http.server
import threading
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import grpc
import pytest

from services.echo import echo_pb2, echo_pb2_grpc
from tests.contract.foreign import browser_client
from tests.contract.foreign.browser_client import Browser, running_browser
from tests.contract.foreign.calls import Call, Message, Metadata
from tests.contract.foreign.names import SUBPROTOCOL
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.external]

if reason := browser_client.why_not():
    pytest.skip(reason, allow_module_level=True)

UNARY = ["connect", "connect-json", "connect-grpc-web", "grpc-web", "grpc-web-text"]
STREAMING = [name for name in UNARY if name != "grpc-web"]  # Google's binary client streams not.


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with running_browser() as running:
        yield running


@pytest.fixture(scope="module")
def other_origin(pages: Path) -> Iterator[str]:
    """A server that has only the page: what it calls is of another origin."""

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_arguments: object) -> None:
            pass

    handler = functools.partial(Quiet, directory=str(pages))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.fixture(scope="module")
def own_origin(web_address: str) -> str:
    return f"http://{web_address}/page"


@pytest.fixture(params=["own_origin", "other_origin"])
def page(request: pytest.FixtureRequest) -> str:
    return f"{request.getfixturevalue(request.param)}/page.html"


@pytest.fixture(scope="module")
def target(web_address: str) -> str:
    return f"http://{web_address}"


def _select(metadata: Metadata, prefix: str) -> Metadata:
    return tuple(sorted((key, value) for key, value in metadata if key.startswith(prefix)))


def _count(target: str) -> echo_pb2.CountReply:
    with grpc.insecure_channel(target.removeprefix("http://")) as channel:
        return echo_pb2_grpc.EchoStub(channel).Count(echo_pb2.CountRequest(), timeout=30)


def _no_handler_runs(target: str) -> bool:
    count = _count(target)
    return count.started == count.succeeded + count.failed + count.cancelled


@pytest.mark.parametrize("client", UNARY)
def test_a_call_brings_its_answer(client: str, page: str, target: str, browser: Browser):
    call = Call(messages=(Message(payload=bytes(range(256)) * 40),))
    outcome = browser.perform(page, client, target, call)
    assert (0, "") == (outcome.code, outcome.message)
    assert (bytes(range(256)) * 40,) == outcome.payloads


@pytest.mark.parametrize("client", STREAMING)
def test_answers_of_a_stream_come_in_order(client: str, page: str, target: str, browser: Browser):
    call = Call(method="PerformStream", messages=(Message(payload=b"again\0\xff"),), answers=5)
    outcome = browser.perform(page, client, target, call)
    assert (0, "") == (outcome.code, outcome.message)
    assert (b"again\0\xff",) * 5 == outcome.payloads


@pytest.mark.parametrize("client", UNARY)
def test_an_error_has_its_details(client: str, page: str, target: str, browser: Browser):
    message = Message(
        status_code=9, status_message="50 % größer\nals", details=(b"one", b"\0two\xff")
    )
    outcome = browser.perform(page, client, target, Call(messages=(message,)))
    assert (9, "50 % größer\nals") == (outcome.code, outcome.message)
    assert (b"one", b"\0two\xff") == outcome.details


@pytest.mark.parametrize("client", STREAMING)
def test_an_error_after_answers(client: str, page: str, target: str, browser: Browser):
    message = Message(payload=b"x", status_code=10, status_message="late", details=(b"why",))
    call = Call(method="PerformStream", messages=(message,), answers=2)
    outcome = browser.perform(page, client, target, call)
    assert (10, "late") == (outcome.code, outcome.message)
    assert ((b"x", b"x"), (b"why",)) == (outcome.payloads, outcome.details)


@pytest.mark.parametrize("client", UNARY)
def test_an_unknown_method_is_named(client: str, page: str, target: str, browser: Browser):
    assert 12 == browser.perform(page, client, target, Call(method="Missing")).code


@pytest.mark.parametrize(
    ("client", "method"),
    [
        *((client, "Perform") for client in UNARY),
        *((client, "PerformStream") for client in STREAMING),
    ],
)
def test_metadata_passes_both_ways(
    client: str, method: str, page: str, target: str, browser: Browser
):
    sent = (
        ("echo-initial-bytes-bin", bytes(range(256))),
        ("echo-initial-text", b"with spaces, and commas"),
        ("echo-trailing-bytes-bin", b"\xab\xab\xab"),
        ("echo-trailing-text", b"~!@#$%^&*()"),
    )
    call = Call(method=method, messages=(Message(describe=True),), metadata=sent)
    outcome = browser.perform(page, client, target, call)
    assert 0 == outcome.code
    assert sent == _select(outcome.seen_metadata, "echo-")
    assert sent[:2] == _select(outcome.initial_metadata, "echo-")
    assert sent[2:] == _select(outcome.trailing_metadata, "echo-")


@pytest.mark.parametrize("client", UNARY)
def test_a_deadline_ends_the_call_and_the_handler(
    client: str, page: str, target: str, browser: Browser
):
    before = _count(target)
    call = Call(messages=(Message(delay_s=60),), timeout_s=1.5)
    outcome = browser.perform(page, client, target, call)
    assert 4 == outcome.code
    assert 1.4 <= outcome.elapsed_s < 30
    wait_until(lambda: _count(target).cancelled == before.cancelled + 1)


@pytest.mark.parametrize("client", UNARY)
def test_a_cancelled_call_ends_its_handler(client: str, page: str, target: str, browser: Browser):
    call = Call(messages=(Message(delay_s=60),), cancel_after=0)

    def is_one_cancelled() -> bool:
        before = _count(target)
        assert 1 == browser.perform(page, client, target, call).code
        wait_until(lambda: _no_handler_runs(target))
        return _count(target).cancelled == before.cancelled + 1

    # The page cancels by its own clock: on a busy machine before the call has left the browser.
    wait_until(is_one_cancelled)


@pytest.mark.parametrize("client", STREAMING)
def test_a_cancelled_stream_ends_its_handler(client: str, page: str, target: str, browser: Browser):
    before = _count(target)
    message = Message(payload=b"more", delay_s=0.01)
    call = Call(method="PerformStream", messages=(message,), answers=1_000_000, cancel_after=3)
    outcome = browser.perform(page, client, target, call)
    assert 1 == outcome.code
    assert len(outcome.payloads) >= 3
    wait_until(lambda: _count(target).cancelled == before.cancelled + 1)


def test_a_method_without_side_effects_is_called_with_get(page: str, target: str, browser: Browser):
    call = Call(method="Echo", messages=(Message(payload=b"cacheable"),))
    outcome = browser.perform(page, "connect-get", target, call)
    assert (0, "") == (outcome.code, outcome.message)
    assert (b"cacheable",) == outcome.payloads


def test_a_socket_of_the_page(own_origin: str, web_address: str, browser: Browser):
    binary = base64.b64encode(bytes(range(256)) * 1000).decode()
    sent = [{"text": "größer"}, {"bytes": binary}, {"text": ""}, {"text": "x" * 100_000}]
    url = f"ws://{web_address}/socket"
    talk = browser.run(f"{own_origin}/page.html", "talk", url, ["other", SUBPROTOCOL], sent)
    assert sent == talk["received"]
    assert (4000, "enough", True) == (talk["code"], talk["reason"], talk["wasClean"])
    assert SUBPROTOCOL == talk["protocol"]


def test_events_of_the_page_come_one_by_one(own_origin: str, browser: Browser):
    page = f"{own_origin}/page.html"
    events = browser.run(page, "listen", "/events?count=4&pause_s=0.2", ["tick"], 4)
    assert [("tick", f"number {number}\nsecond line", str(number)) for number in range(4)] == [
        (event["name"], event["data"], event["id"]) for event in events
    ]
    gaps_ms = [later["at_ms"] - sooner["at_ms"] for sooner, later in pairwise(events)]
    assert min(gaps_ms) > 50, gaps_ms
