"""The page in a browser: it loads, follows the mesh, and calls methods."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass

import httpx
import pytest

from tests.contract.foreign import browser_client
from tests.mesh.seeing.calling import calls
from tests.mesh.start.processes import address_of, application, standing, status_of
from tests.support.leftovers import environment_of_a_mesh
from tests.support.visiting import Visitor, visiting
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.external]

if reason := browser_client.why_not():
    pytest.skip(reason, allow_module_level=True)

_PAGES = {
    "#/": "Overview",
    "#/graph": "Graph",
    "#/calls": "Calls",
    "#/models": "Models",
    "#/scaling": "Autoscaling",
    "#/try": "Try a method",
    "#/deployments/default/Shop": "default/Shop",
}


@dataclass(frozen=True)
class Seen:
    """A mesh with an application.

    Attributes:
        url: Of its page.
        address: Where it takes calls.
    """

    url: str
    address: str


@pytest.fixture(scope="module")
def visitor() -> Iterator[Visitor]:
    with visiting() as running:
        yield running


@contextmanager
def mesh(name: str) -> Iterator[Seen]:
    """Have a mesh with an application, whose metrics are at a free port."""
    with environment_of_a_mesh() as environment:
        environment |= {"PYSERVE_METRICS_PORT": "0", "PYSERVE_TRY_METHODS": "1"}
        with standing(environment), application(environment, f"tests.mesh.seeing.apps:{name}"):
            (ingress,) = status_of(environment)["ingresses"]
            yield Seen(f"http://{ingress['admin']}", address_of(environment))


@pytest.fixture(scope="module")
def shop() -> Iterator[Seen]:
    with mesh("shop") as running:
        yield running


@pytest.fixture(scope="module")
def echo() -> Iterator[Seen]:
    with mesh("echo") as running:
        yield running


def viewers(url: str) -> int:
    """Return how many watch."""
    return int(httpx.get(f"{url}/api/viewers.json", trust_env=False, timeout=20).json()["viewers"])


def cell(target: str, column: int) -> str:
    """Return a script for the text in a deployment's row of the overview."""
    rows = '[...document.querySelectorAll("#page tr")]'
    row = f'{rows}.find((each) => each.textContent.startsWith("{target}"))'
    return f"{row}?.children[{column}].textContent"


@pytest.mark.parity("G-83")
def test_each_page_loads_and_asks_nobody_else(shop: Seen, visitor: Visitor):
    assert 200 == visitor.open(shop.url)
    visitor.see("th", "default/Prices")
    for place, title in _PAGES.items():
        visitor.do("go", hash=place)
        visitor.see("h1", title)
        visitor.until("document.querySelector('#page').textContent.trim() !== 'Loading.'")
    assert [] == visitor.said(), "neither an error nor something that the policy forbids"
    assert all(each.startswith(f"{shop.url}/") for each in visitor.asked())


def test_it_follows_the_calls_that_run(shop: Seen, visitor: Visitor):
    visitor.open(shop.url)
    visitor.until(f'{cell("default/Shop", 4)} === "0"')
    with calls(f"http://{shop.address}/"):
        visitor.until(f"Number({cell('default/Shop', 4)}) > 1")
        visitor.do("go", hash="#/graph")
        visitor.see("svg.graph text", "/s, p99")
        visitor.see("svg.graph a", "default/Prices")
    visitor.do("go", hash="#/")
    visitor.until(f'{cell("default/Shop", 4)} === "0"')


def test_it_looks_only_while_it_is_seen(shop: Seen, visitor: Visitor):
    visitor.open(shop.url)
    visitor.see("th", "default/Prices")
    wait_until(lambda: viewers(shop.url) == 1, 20)
    visitor.do("hide", hidden=True)
    wait_until(lambda: viewers(shop.url) == 0, 20)
    visitor.do("hide", hidden=False)
    wait_until(lambda: viewers(shop.url) == 1, 20)
    visitor.do("click", selector="#pause")
    visitor.see("#live", "paused")
    wait_until(lambda: viewers(shop.url) == 0, 20)


def test_models_and_changes_of_numbers_of_replicas_are_told(visitor: Visitor):
    with mesh("memory") as memory, ThreadPoolExecutor(4) as callers:
        address = f"http://{memory.address}/"
        named = {"serve_multiplexed_model_id": "small"}
        assert 200 == httpx.get(address, headers=named, trust_env=False, timeout=20).status_code
        visitor.open(f"{memory.url}/#/models")
        visitor.see("th", "small")
        rows = '[...document.querySelectorAll("#page tr")].map((row) => row.textContent)'
        visitor.until(f'{rows}.some((text) => text.startsWith("smalldefault/MemoryMemory#"))')
        visitor.until("document.querySelectorAll('#page table').length === 2")

        for _ in range(4):
            callers.submit(httpx.get, f"{address}?for=2", trust_env=False, timeout=20)
        visitor.do("go", hash="#/scaling")
        visitor.until(f"{rows}.some((text) => /:..default.Memory12.*for each replica/.test(text))")


def test_a_method_is_called_from_its_form(echo: Seen, visitor: Visitor):
    visitor.open(f"{echo.url}/#/try")
    visitor.do("choose", selector="#method", label="default: services.echo.Echo/Echo")
    visitor.do("fill", selector="textarea[name=payload]", text="AAEC")
    visitor.do("press", key="Tab")
    visitor.do("click", selector="button[type=submit]")
    visitor.see(".answer p", "Answered with HTTP 200")
    assert {"payload": "AAEC"} == json.loads(visitor.see(".answer pre"))
    visitor.do("click", selector=".answer a")
    visitor.see(".cause")  # On a busy machine it may be the way there rather than the run.
    visitor.see("svg.waterfall text", "its request came")
    visitor.see("svg.waterfall text", "ran in Echo#")
    visitor.do("go", hash="#/calls")
    visitor.do("click", selector=".kinds button:nth-of-type(3)")
    visitor.see("td", "/services.echo.Echo/Echo (json)")


def test_what_somebody_types_and_where_stays_over_updates(echo: Seen, visitor: Visitor):
    visitor.open(f"{echo.url}/#/try")
    visitor.do("choose", selector="#method", label="default: services.echo.Echo/Echo")
    visitor.do("fill", selector="textarea[name=payload]", text="AAEC")
    clock = visitor.see("#live")
    visitor.until(f"document.querySelector('#live').textContent !== {json.dumps(clock)}")
    assert ["payload", "AAEC"] == visitor.do(
        "run", script="[document.activeElement.name, document.activeElement.value]"
    )


def test_a_keyboard_reaches_everything_and_each_input_has_a_name(shop: Seen, visitor: Visitor):
    visitor.open(shop.url)
    visitor.see("th", "default/Prices")
    visitor.do("press", key="Tab")
    assert "To the content" == visitor.do("run", script="document.activeElement.textContent")
    names = []
    for _ in range(14):
        visitor.do("press", key="Tab")
        names.append(visitor.do("run", script="document.activeElement.textContent"))
    assert {"Overview", "Graph", "Pause", "default/Prices", "default/Shop"} <= set(names)
    visitor.do("go", hash="#/graph")
    visitor.until("document.activeElement.id === 'title'")
    for place, title in _PAGES.items():
        visitor.do("go", hash=place)
        visitor.see("h1", title)
        unnamed = """[...document.querySelectorAll("input, select, textarea, button, a")]
            .filter((each) => !(each.labels?.length || each.getAttribute("aria-label")
              || each.textContent.trim())).map((each) => each.outerHTML)"""
        assert [] == visitor.do("run", script=unnamed)
    landmarks = 'document.querySelectorAll("header, nav[aria-label], main, h1").length'
    assert 4 == visitor.do("run", script=landmarks)
