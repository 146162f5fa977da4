"""The page in a browser: it loads, follows the mesh, and calls methods."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import httpx
import pytest

from tests.contract.foreign import browser_client
from tests.mesh.seeing.calling import calls
from tests.mesh.start.processes import address_of, application, standing, status_of
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


@pytest.fixture
def visitor() -> Iterator[Visitor]:
    with visiting() as running:
        yield running


@contextmanager
def mesh(environment: dict[str, str], name: str) -> Iterator[str]:
    """Have a mesh with an application; yield where its page is."""
    environment = {**environment, "PYSERVE_TRY_METHODS": "1"}
    with standing(environment), application(environment, f"tests.mesh.seeing.apps:{name}"):
        (ingress,) = status_of(environment)["ingresses"]
        yield f"http://{ingress['admin']}"


def viewers(url: str) -> int:
    """Return how many watch."""
    return int(httpx.get(f"{url}/api/viewers.json", trust_env=False, timeout=20).json()["viewers"])


def cell(target: str, column: int) -> str:
    """Return a script for the text in a deployment's row of the overview."""
    rows = '[...document.querySelectorAll("#page tr")]'
    row = f'{rows}.find((each) => each.textContent.startsWith("{target}"))'
    return f"{row}?.children[{column}].textContent"


@pytest.mark.parity("G-83")
def test_each_page_loads_and_asks_nobody_else(environment: dict[str, str], visitor: Visitor):
    with mesh(environment, "shop") as url:
        assert 200 == visitor.open(url)
        visitor.see("th", "default/Prices")
        for place, title in _PAGES.items():
            visitor.do("go", hash=place)
            visitor.see("h1", title)
            visitor.until("document.querySelector('#page').textContent.trim() !== 'Loading.'")
        assert [] == visitor.said(), "neither an error nor something that the policy forbids"
        assert all(each.startswith(f"{url}/") for each in visitor.asked())


def test_it_follows_the_calls_that_run(environment: dict[str, str], visitor: Visitor):
    with mesh(environment, "shop") as url:
        visitor.open(url)
        visitor.until(f'{cell("default/Shop", 4)} === "0"')
        with calls(f"http://{address_of(environment)}/"):
            visitor.until(f"Number({cell('default/Shop', 4)}) > 1")
            visitor.do("go", hash="#/graph")
            visitor.see("svg.graph text", "/s, p99")
            visitor.see("svg.graph a", "default/Prices")
        visitor.do("go", hash="#/")
        visitor.until(f'{cell("default/Shop", 4)} === "0"')


def test_it_looks_only_while_it_is_seen(environment: dict[str, str], visitor: Visitor):
    with mesh(environment, "shop") as url:
        visitor.open(url)
        visitor.see("th", "default/Prices")
        wait_until(lambda: viewers(url) == 1, 20)
        visitor.do("hide", hidden=True)
        wait_until(lambda: viewers(url) == 0, 20)
        visitor.do("hide", hidden=False)
        wait_until(lambda: viewers(url) == 1, 20)
        visitor.do("click", selector="#pause")
        visitor.see("#live", "paused")
        wait_until(lambda: viewers(url) == 0, 20)


def test_models_and_changes_of_numbers_of_replicas_are_told(
    environment: dict[str, str], visitor: Visitor
):
    with mesh(environment, "memory") as url, ThreadPoolExecutor(4) as callers:
        address = f"http://{address_of(environment)}/"
        named = {"serve_multiplexed_model_id": "small"}
        assert 200 == httpx.get(address, headers=named, trust_env=False, timeout=20).status_code
        visitor.open(f"{url}/#/models")
        visitor.see("th", "small")
        rows = '[...document.querySelectorAll("#page tr")].map((row) => row.textContent)'
        visitor.until(f'{rows}.some((text) => text.startsWith("smalldefault/MemoryMemory#"))')
        visitor.until("document.querySelectorAll('#page table').length === 2")

        for _ in range(4):
            callers.submit(httpx.get, f"{address}?for=2", trust_env=False, timeout=20)
        visitor.do("go", hash="#/scaling")
        visitor.until(f"{rows}.some((text) => /:..default.Memory12.*for each replica/.test(text))")


def test_a_method_is_called_from_its_form(environment: dict[str, str], visitor: Visitor):
    with mesh(environment, "echo") as url:
        visitor.open(f"{url}/#/try")
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


def test_what_somebody_types_and_where_stays_over_updates(
    environment: dict[str, str], visitor: Visitor
):
    with mesh(environment, "echo") as url:
        visitor.open(f"{url}/#/try")
        visitor.do("choose", selector="#method", label="default: services.echo.Echo/Echo")
        visitor.do("fill", selector="textarea[name=payload]", text="AAEC")
        clock = visitor.see("#live")
        visitor.until(f"document.querySelector('#live').textContent !== {json.dumps(clock)}")
        assert ["payload", "AAEC"] == visitor.do(
            "run", script="[document.activeElement.name, document.activeElement.value]"
        )


def test_a_keyboard_reaches_everything_and_each_input_has_a_name(
    environment: dict[str, str], visitor: Visitor
):
    with mesh(environment, "shop") as url:
        visitor.open(url)
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
