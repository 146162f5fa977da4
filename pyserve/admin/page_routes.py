"""The web page: files of the package, which contain no data and load nothing from elsewhere.

They are open to everybody, also without the token: the page asks for it and sends it to ``/api``.
"""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING

from starlette.responses import Response
from starlette.routing import Route

if TYPE_CHECKING:
    from starlette.requests import Request

_FOLDER = Path(__file__).with_name("page")
_PREFIX = "/page/"
_TYPES = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".mjs": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
# Nothing but these files and this server; no text ever becomes a script or HTML.
_POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        # The results of calls from the page are at addresses of the page's own.
        "img-src 'self' blob:",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
    )
)
_HEADERS = {
    "content-security-policy": _POLICY,
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    # Revalidated each time, so that a new version of pyserve brings its own page.
    "cache-control": "no-cache",
}


def routes() -> list[Route]:
    """Return a route for each file."""
    files = [path for path in sorted(_FOLDER.iterdir()) if path.suffix in _TYPES]
    found = [Route(_PREFIX + path.name, _file(path), methods=["GET"]) for path in files]
    return [Route("/", _file(_FOLDER / "index.html"), methods=["GET"]), *found]


def is_of_page(path: str) -> bool:
    """Say whether a path is one of the page's own."""
    return path == "/" or path.startswith(_PREFIX)


def _file(path: Path) -> Callable[[Request], Awaitable[Response]]:
    content = path.read_bytes()
    tag = f'"{hashlib.sha256(content).hexdigest()[:16]}"'
    headers = {**_HEADERS, "content-type": _TYPES[path.suffix], "etag": tag}

    async def answer(request: Request) -> Response:
        if request.headers.get("if-none-match") == tag:
            return Response(status_code=304, headers=headers)
        return Response(content, headers=headers)

    return answer
