"""Clients that call until they are told to stop."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import httpx

_TIMEOUT_S = 20.0


@contextmanager
def calls(url: str, clients: int = 2) -> Iterator[list[str]]:
    """Have clients call, one request after the other; yield the answers as they come."""
    is_over = threading.Event()
    answers: list[str] = []

    def call() -> None:
        with httpx.Client(timeout=_TIMEOUT_S, trust_env=False) as client:
            while not is_over.is_set():
                answer = client.get(url)
                answer.raise_for_status()
                answers.append(answer.text)

    threads = [threading.Thread(target=call) for _ in range(clients)]
    for thread in threads:
        thread.start()
    try:
        yield answers
    finally:
        is_over.set()
        for thread in threads:
            thread.join()
