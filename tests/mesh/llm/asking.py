"""Chats as clients send them, and the events of their answers."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

CHAT = "/v1/chat/completions"


def chat(script: str, model: str | None = "alpha", **fields: Any) -> dict[str, Any]:
    """Return the body of a request whose last message is ``script``."""
    body = {"messages": [{"role": "user", "content": script}], **fields}
    return body if model is None else {"model": model, **body}


def data_of(lines: Iterable[str]) -> Iterator[str]:
    """Yield the data of server-sent events."""
    for line in lines:
        if line.startswith("data: "):
            yield line.removeprefix("data: ")


def text_of(events: Iterable[str]) -> str:
    """Return the text of a streamed answer, whose last event must be ``[DONE]``."""
    *chunks, last = events
    assert last == "[DONE]"
    deltas = [choice["delta"] for chunk in chunks for choice in json.loads(chunk)["choices"]]
    return "".join(delta.get("content") or "" for delta in deltas)
