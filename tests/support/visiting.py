"""A person in front of a page: headless Chromium, by way of browser/visit.mjs."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests.contract.foreign.browser_client import FOLDER, chromium

_END_TIMEOUT_S = 15.0


class Visitor:
    """One browser with one page at a time; each deed ends within its own patience, or fails."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self.version = self._answer()

    def do(self, name: str, **given: object) -> Any:
        """Do something, as visit.mjs names it.

        Raises:
            AssertionError: It cannot be done.
        """
        assert self._process.stdin is not None
        self._process.stdin.write(f"{json.dumps({'do': name, **given})}\n")
        self._process.stdin.flush()
        return self._answer()

    def open(self, url: str, **options: object) -> int:
        """Go to a page; return the status of its answer."""
        status: int = self.do("open", url=url, **options)
        return status

    def see(self, selector: str, text: str = "") -> str:
        """Wait for an element with this text; return all of its text."""
        found: str = self.do("see", selector=selector, text=text)
        return found

    def until(self, script: str) -> Any:
        """Wait until an expression of the page is true; return its value."""
        return self.do("until", script=script)

    def said(self) -> list[str]:
        """Return what the page has written to its console."""
        said: list[str] = self.do("seen")["said"]
        return said

    def asked(self) -> list[str]:
        """Return what the page has asked for."""
        asked: list[str] = self.do("seen")["asked"]
        return asked

    def _answer(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()  # The driver bounds what it does.
        assert line, f"the driver ended with {self._process.wait(_END_TIMEOUT_S)}"
        answer = json.loads(line)
        assert "error" not in answer, answer["error"]
        return answer["result"]


@contextmanager
def visiting() -> Iterator[Visitor]:
    """Start a browser, and end it with the block."""
    executable = chromium()
    assert executable is not None, "asked for first"
    process = subprocess.Popen(
        ["node", "visit.mjs", executable],
        cwd=FOLDER,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        yield Visitor(process)
        assert process.stdin is not None
        process.stdin.close()
        assert process.wait(_END_TIMEOUT_S) == 0
    finally:
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                pipe.close()
