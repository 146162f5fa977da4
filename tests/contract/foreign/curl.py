"""curl, with everything that it tells about one exchange."""

from __future__ import annotations

import functools
import json
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

MAX_TIME_S = 20


def why_not() -> str | None:
    """Say why curl cannot be used here; None if it can."""
    if shutil.which("curl") is None:
        return "curl is not installed"
    if version() < (7, 70):
        return "this curl is older than 7.70 and has no --write-out %{json}"
    return None


@functools.cache
def _about() -> str:
    return subprocess.run(
        ["curl", "--version"], capture_output=True, text=True, check=True, timeout=10
    ).stdout


def version() -> tuple[int, ...]:
    """Return curl's version, major and minor."""
    return tuple(map(int, _about().split()[1].split(".")[:2]))


def speaks_http2() -> bool:
    """Say whether this curl was built with HTTP/2."""
    return "HTTP2" in _about().split()


@dataclass(frozen=True)
class Answer:
    """What came back.

    Attributes:
        exit_code: Of curl; 28: the time was up.
        versions: Of each head that came, "1.1" or "2"; interim ones are among them.
        statuses: Of each head that came.
        headers: Of the last head, names in lower case.
        facts: What ``--write-out %{json}`` says.
    """

    exit_code: int
    versions: list[str]
    statuses: list[int]
    headers: dict[str, str]
    body: bytes
    facts: dict[str, Any]

    @property
    def status(self) -> int:
        """The last one."""
        return self.statuses[-1]

    def json(self) -> Any:
        """Parse the body."""
        return json.loads(self.body)


def curl(url: str, *arguments: str, body: bytes | None = None) -> Answer:
    """Run curl with ``arguments``.

    Args:
        url: What is asked for.
        body: Becomes its standard input, for ``--data-binary @-`` and ``--upload-file -``.
    """
    with tempfile.TemporaryDirectory() as folder:
        head, content = Path(folder, "head"), Path(folder, "body")
        fixed = ["--silent", "--max-time", str(MAX_TIME_S), "--write-out", "%{json}"]
        fixed += ["--dump-header", str(head), "--output", str(content)]
        ended = subprocess.run(
            ["curl", *fixed, *arguments, url],
            input=body,
            capture_output=True,
            timeout=MAX_TIME_S + 10,
            check=False,
        )
        versions, statuses, headers = _heads(head.read_text() if head.exists() else "")
        return Answer(
            exit_code=ended.returncode,
            versions=versions,
            statuses=statuses,
            headers=headers,
            body=content.read_bytes() if content.exists() else b"",
            facts=json.loads(ended.stdout),
        )


def _heads(text: str) -> tuple[list[str], list[int], dict[str, str]]:
    versions, statuses = [], []
    headers: dict[str, str] = {}
    for line in text.splitlines():
        if line.startswith("HTTP/"):
            protocol, status, *_ = line.split()
            versions.append(protocol.removeprefix("HTTP/"))
            statuses.append(int(status))
            headers = {}
        elif line:
            name, _, value = line.partition(":")
            headers[name.lower()] = value.strip()
    return versions, statuses, headers
