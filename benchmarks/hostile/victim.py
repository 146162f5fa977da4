"""A well-behaved neighbour at a low steady rate."""

from __future__ import annotations

import math
import re
import socket
import time
from collections.abc import Callable

TIMEOUT_S = 20.0


class Victim:
    """One connection of HTTP/1.1 that asks, waits for the answer, and asks again.

    Args:
        address: host and port of the ingress.
        path: What it asks for.
    """

    def __init__(self, address: tuple[str, int], path: str = "/plain") -> None:
        self._request = f"GET {path} HTTP/1.1\r\nhost: test\r\n\r\n".encode()
        self._socket = socket.create_connection(address, timeout=TIMEOUT_S)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def ask(self) -> float:
        """Return how long one request took, in seconds.

        Raises:
            OSError: The connection ended, or there was no answer within ``TIMEOUT_S``.
            AssertionError: The answer is another one than 200.
        """
        begun_s = time.perf_counter()
        self._socket.sendall(self._request)
        received = b""
        while (length := _answer_bytes(received)) is None or len(received) < length:
            if not (piece := self._socket.recv(4096)):
                raise ConnectionResetError("the mesh closed a good connection")
            received += piece
        assert received.startswith(b"HTTP/1.1 200 "), received
        return time.perf_counter() - begun_s

    def ask_steadily(
        self, rate: float, seconds: float, until: Callable[[], bool] = lambda: False
    ) -> list[float]:
        """Ask ``rate`` times a second; latencies are counted from when a request was due."""
        latencies = []
        begun_s = time.perf_counter()
        for index in range(int(rate * seconds)):
            due_s = begun_s + index / rate
            time.sleep(max(0.0, due_s - time.perf_counter()))
            late_s = time.perf_counter() - due_s
            latencies.append(late_s + self.ask())
            if until():
                break
        return latencies

    def close(self) -> None:
        """End the connection."""
        self._socket.close()


def _answer_bytes(received: bytes) -> int | None:
    """Return how long the answer is; None until its head is whole."""
    head, end, _ = received.partition(b"\r\n\r\n")
    if not end:
        return None
    found = re.search(rb"\r\ncontent-length: (\d+)", head, re.IGNORECASE)
    assert found, f"an answer without a length: {head!r}"
    return len(head) + len(end) + int(found.group(1))


def percentile(values: list[float], share: float) -> float:
    """Return the smallest value that at least ``share`` of all are not above."""
    return sorted(values)[max(0, math.ceil(share * len(values)) - 1)]
