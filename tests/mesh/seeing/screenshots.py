"""Takes the pictures of the page that the guide shows, of a mesh with calls in it.

``python -m tests.mesh.seeing.screenshots FOLDER``
"""

from __future__ import annotations

import json
import os
import random
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx

from tests.mesh.commands import pyserve
from tests.support.mesh import RunningMesh, running_mesh
from tests.support.visiting import Visitor, visiting
from tests.support.waiting import wait_until

_APPLICATIONS = {"shop": "/shop", "vision": "/vision", "echo": "/echo"}
_MODELS = ("resnet-50", "vit-b16", "clip", "sam")
_TIMEOUT_S = 30.0
_LOOKS = 8
# Each with the hash of the page and the colours.
_PAGES = (
    ("overview", "#/", "light"),
    ("graph", "#/graph", "light"),
    ("deployment", "#/deployments/shop/Prices", "light"),
    ("calls", "#/calls", "dark"),
)


def main(folder: Path) -> None:
    """Take all of them."""
    folder.mkdir(exist_ok=True)
    with _mesh() as mesh, _calls(f"http://{mesh.address}"), visiting() as visitor:
        environment = {**os.environ, "PYSERVE_HOME": str(mesh.home)}
        status = json.loads(pyserve("status", "--json", environment=environment).stdout)
        url = f"http://{status['ingresses'][0]['admin']}"
        for name, place, scheme in _PAGES:
            visitor.open(f"{url}/{place}", scheme=scheme, height=720)
            _look_on(visitor)
            visitor.do("shoot", path=str(folder / f"{name}.png"), whole=name != "calls")
        visitor.open(f"{url}/#/calls", height=720)
        _slowest(visitor)
        visitor.do("shoot", path=str(folder / "call.png"))
        visitor.open(f"{url}/#/try", scheme="dark", height=720)
        _try_stream(visitor)
        visitor.do("shoot", path=str(folder / "try.png"))


def _look_on(visitor: Visitor) -> None:
    """Let lines and rates become what they are after half a minute."""
    for _ in range(_LOOKS):
        clock = visitor.see("#live")
        visitor.until(f"document.querySelector('#live').textContent !== {json.dumps(clock)}")


def _slowest(visitor: Visitor) -> None:
    visitor.do("click", selector=".kinds button:nth-of-type(2)")
    visitor.see("td", "shop/Shop")
    visitor.do("click", selector='tr:has-text("shop/Shop") th a')
    visitor.see("svg.waterfall text", "its request came")


def _try_stream(visitor: Visitor) -> None:
    label = "echo: services.echo.Echo/EchoStream"
    visitor.see("#method option", label)
    visitor.do("choose", selector="#method", label=label)
    visitor.do("fill", selector='[name="payload"]', text="aGVsbG8=")
    visitor.do("fill", selector='[name="messages"]', text="5")
    visitor.do("click", selector="button[type=submit]")
    visitor.see(".answer p", "Answered with HTTP 200")


@contextmanager
def _mesh() -> Iterator[RunningMesh]:
    applications = [
        {"name": name, "route_prefix": prefix, "import_path": f"tests.mesh.seeing.demo:{name}"}
        for name, prefix in _APPLICATIONS.items()
    ]
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
        json.dump({"applications": applications}, file)
        file.flush()
        with running_mesh(file.name, environment={"PYSERVE_METRICS_PORT": "0"}) as mesh:
            ready = "application {!r} is ready"
            wait_until(
                lambda: all(ready.format(name) in mesh.output() for name in _APPLICATIONS), 60
            )
            yield mesh


@contextmanager
def _calls(url: str) -> Iterator[None]:
    """Have clients call both applications, some errors included, until the end of the block."""
    is_over = threading.Event()

    def call(client: httpx.Client, number: int) -> None:
        while not is_over.is_set():
            if number % 2:
                model = random.choice(_MODELS)
                client.get(f"{url}/vision", headers={"serve_multiplexed_model_id": model})
            else:
                client.get(f"{url}/shop")

    def run(number: int) -> None:
        with httpx.Client(timeout=_TIMEOUT_S, trust_env=False) as client:
            call(client, number)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        is_over.set()
        for thread in threads:
            thread.join()


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve())
