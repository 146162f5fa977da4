"""A mesh with an application of each kind, and calls from its page without a browser."""

from __future__ import annotations

import base64
import json
import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import httpx

from tests.mesh.seeing.trying_apps import PREFIXES
from tests.support.mesh import running_mesh
from tests.support.waiting import wait_until

TIMEOUT_S = 20.0
HEADERS = {"x-pyserve-page": "1"}
_PAGE = re.compile(r"try it in a browser at (http://127\.0\.0\.1:\d+)/#/try\n")

Events = Iterator[tuple[str, dict[str, Any]]]


@dataclass(frozen=True)
class Page:
    """The page of a mesh, whose address ``pyserve run`` has printed."""

    url: str

    @contextmanager
    def calling(self, **wanted: Any) -> Iterator[Events]:
        """Call a method; yield its events as they come. The end of the block cancels it."""
        with (
            httpx.Client(timeout=TIMEOUT_S, trust_env=False) as client,
            client.stream("POST", f"{self.url}/api/call", json=wanted, headers=HEADERS) as answer,
        ):
            assert 200 == answer.status_code, answer.read()
            yield _events(answer)

    def call(self, **wanted: Any) -> dict[str, Any]:
        """Call a method to its end; return its events by their names, of several the last."""
        with self.calling(**wanted) as events:
            return dict(events)

    def rpc(self, method: str, *messages: object, **more: Any) -> dict[str, Any]:
        """Call a method of the echo service."""
        return self.call(**rpc(method, *messages, **more))

    def http(self, verb: str, path: str, body: bytes = b"", **headers: str) -> dict[str, Any]:
        """Send a request of plain HTTP."""
        content = base64.b64encode(body).decode()
        given = {name.replace("_", "-"): value for name, value in headers.items()}
        return self.call(kind="http", verb=verb, path=path, headers=given, body=content)

    def post(self, path: str, value: object) -> httpx.Response:
        """Send one of the page's own requests."""
        return httpx.post(
            self.url + path, json=value, headers=HEADERS, timeout=TIMEOUT_S, trust_env=False
        )

    def get(self, path: str) -> httpx.Response:
        """Read one of the page's resources."""
        return httpx.get(self.url + path, timeout=TIMEOUT_S, trust_env=False)


def rpc(method: str, *messages: object, **more: Any) -> dict[str, Any]:
    """Return what the page sends for a method of the echo service."""
    path = f"/services.echo.Echo/{method}"
    return {"kind": "rpc", "path": path, "messages": [json.dumps(m) for m in messages], **more}


def _events(answer: httpx.Response) -> Events:
    name = ""
    for line in answer.iter_lines():
        key, _, value = line.partition(": ")
        if key == "event":
            name = value
        elif key == "data":
            yield name, json.loads(value)


@contextmanager
def trying() -> Iterator[Page]:
    """Have a mesh with all applications, as ``pyserve run`` makes it."""
    applications = [
        {
            "name": name,
            "route_prefix": prefix,
            "import_path": f"tests.mesh.seeing.trying_apps:{name}",
        }
        for name, prefix in PREFIXES.items()
    ]
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
        json.dump({"applications": applications}, file)
        file.flush()
        with running_mesh(file.name, environment={"PYSERVE_METRICS_PORT": "0"}) as mesh:
            wait_until(lambda: _PAGE.search(mesh.output()), 60)
            (url,) = _PAGE.findall(mesh.output())
            yield Page(url)
