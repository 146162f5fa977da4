"""The client of the page about HTTP, against servers that fail."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.docs.page import read_blocks, run_page

PAGE = Path(__file__).resolve().parents[2] / "docs" / "guide" / "http.md"
BROKEN = 0  # in place of a status: the connection is closed without an answer


@pytest.fixture(scope="module")
def send() -> Callable[..., httpx.Response]:
    """The function that the page shows."""
    (block,) = [b for b in read_blocks(PAGE.read_text()) if b.words == ("retrying.py",)]
    names: dict[str, Any] = {}
    exec(compile(block.body, "retrying.py", "exec"), names)
    found: Callable[..., httpx.Response] = names["send"]
    return found


@contextlib.contextmanager
def _answering(statuses: Sequence[int], header: str = "") -> Iterator[tuple[str, list[bytes]]]:
    """Answer one connection after the other; yields the URL and the requests that came."""
    seen: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(30)

        def serve() -> None:
            for status in statuses:
                connection, _ = listener.accept()
                with connection:
                    connection.settimeout(30)
                    seen.append(connection.recv(65536))
                    if status != BROKEN:
                        head = f"HTTP/1.1 {status} x\r\ncontent-length: 0\r\n{header}"
                        connection.sendall(f"{head}connection: close\r\n\r\n".encode())

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}/", seen
        finally:
            thread.join(30)
    assert not thread.is_alive()


@pytest.mark.parity("S-49")
@pytest.mark.parametrize(
    "statuses", [[408, 408, 200], [BROKEN, 408, 200], [503, 429, 200], [BROKEN, BROKEN, 200]]
)
def test_it_tries_again_after_timeouts_and_broken_connections(
    send: Callable[..., httpx.Response], statuses: list[int]
) -> None:
    with _answering(statuses) as (url, seen), httpx.Client() as client:
        response = send(client, "POST", url, pause_s=0.001)
    assert 200 == response.status_code
    assert 3 == len(seen)


@pytest.mark.parity("S-49")
def test_it_gives_up_after_its_last_attempt(send: Callable[..., httpx.Response]) -> None:
    with _answering([408, 408]) as (url, seen), httpx.Client() as client:
        response = send(client, "POST", url, attempts=2, pause_s=0.001)
    assert 408 == response.status_code
    assert 2 == len(seen)
    with (
        _answering([BROKEN, BROKEN]) as (url, seen),
        httpx.Client() as client,
        pytest.raises(httpx.TransportError),
    ):
        send(client, "POST", url, attempts=2, pause_s=0.001)
    assert 2 == len(seen)


@pytest.mark.slow
def test_the_example_prints_the_same_when_one_more_answer_is_late(tmp_path: Path) -> None:
    page = PAGE.read_text()
    section = page[page.index("## A client that tries again") :]
    assert 1 == section.count("if self.seen < 3:")

    assert 1 == run_page(section.replace("if self.seen < 3:", "if self.seen < 4:"), tmp_path)


@pytest.mark.parametrize("status", [200, 204, 400, 404, 422, 500])
def test_answers_that_settle_it_are_returned_at_once(
    send: Callable[..., httpx.Response], status: int
) -> None:
    with _answering([status]) as (url, seen), httpx.Client() as client:
        assert status == send(client, "POST", url).status_code
    assert 1 == len(seen)


def test_pauses_grow_are_random_and_bounded_and_never_shorter_than_asked_for(
    send: Callable[..., httpx.Response], monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[float] = []
    monkeypatch.setattr("time.sleep", pauses.append)
    monkeypatch.setattr("random.uniform", lambda _low, high: high)
    with _answering([408] * 5) as (url, _), httpx.Client() as client:
        send(client, "POST", url, pause_s=0.1, pause_s_max=0.3)
    assert pytest.approx([0.1, 0.2, 0.3, 0.3]) == pauses
    pauses.clear()
    with _answering([503, 200], "retry-after: 2\r\n") as (url, _), httpx.Client() as client:
        send(client, "POST", url)
    assert [2.0] == pauses
