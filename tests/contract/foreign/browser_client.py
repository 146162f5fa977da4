"""Clients from npm in a page of headless Chromium, by way of browser/drive.mjs."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.contract.foreign.calls import Call, Outcome

FOLDER = Path(__file__).parent / "browser"
_ROOT = Path(__file__).parents[3]
_END_TIMEOUT_S = 15.0
# The names of Debian and Ubuntu, of Fedora and Arch, and of Google's own packages.
_NAMES = ("chromium", "chromium-browser", "google-chrome")


def why_not() -> str | None:
    """Say why no page can be driven here; None if one can."""
    if shutil.which("node") is None:
        return "node is not installed"
    if not (FOLDER / "node_modules" / "playwright-core").is_dir():
        folder = FOLDER.relative_to(_ROOT)
        return f"the clients of the page are not installed: npm ci --prefix {folder}"
    if chromium() is None:
        return "Chromium is not installed (on Debian: apt install chromium)"
    return None


def chromium() -> str | None:
    """Return the browser's program, if there is one."""
    return next(filter(None, map(shutil.which, _NAMES)), None)


def build_page(folder: Path) -> None:
    """Write the page, its script in one file, and the descriptors of services.echo."""
    command = [
        str(FOLDER / "node_modules/.bin/esbuild"),
        *("page.mjs", "--bundle", "--format=iife", "--log-level=warning"),
        f"--outfile={folder / 'bundle.js'}",
    ]
    subprocess.run(command, cwd=FOLDER, check=True, timeout=60)
    shutil.copy(FOLDER / "page.html", folder)
    command = [
        *(sys.executable, "-m", "grpc_tools.protoc", "-I.", "--include_imports"),
        *(f"--descriptor_set_out={folder / 'descriptors.bin'}", "services/echo/echo.proto"),
    ]
    subprocess.run(command, cwd=_ROOT, check=True, timeout=60)


class Browser:
    """One browser; pages stay open between calls."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self.version = self._answer()

    def run(self, page: str, function: str, *arguments: object) -> Any:
        """Call a function of a page and return what it resolves to.

        Raises:
            AssertionError: It threw, or did not end within half a minute.
        """
        line = json.dumps({"page": page, "function": function, "arguments": arguments})
        assert self._process.stdin is not None
        self._process.stdin.write(f"{line}\n")
        self._process.stdin.flush()
        return self._answer()

    def perform(self, page: str, client: str, target: str, call: Call) -> Outcome:
        """Do one call of services.echo from a page.

        Args:
            page: Where the browser gets the page.
            client: One of ``CLIENTS`` in browser/page.mjs.
            target: What it calls, "http://host:port".
            call: What it does there.
        """
        return Outcome.from_json(self.run(page, "perform", client, target, call.to_json()))

    def _answer(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()  # The driver bounds what it does.
        assert line, f"the driver ended with {self._process.wait(_END_TIMEOUT_S)}"
        answer = json.loads(line)
        assert "error" not in answer, answer["error"]
        return answer["result"]


@contextmanager
def running_browser() -> Iterator[Browser]:
    """Start a headless Chromium, and end it with the block."""
    executable = chromium()
    assert executable is not None
    process = subprocess.Popen(
        ["node", "drive.mjs", executable],
        cwd=FOLDER,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        yield Browser(process)
        assert process.stdin is not None
        process.stdin.close()
        assert process.wait(_END_TIMEOUT_S) == 0
    finally:
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                pipe.close()
