"""The page to try methods, in a browser."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator

import pytest

from tests.contract.foreign import browser_client
from tests.mesh.seeing.trying import Page, trying
from tests.support.visiting import Visitor, visiting

pytestmark = [pytest.mark.slow, pytest.mark.external, pytest.mark.timeout(120)]

if reason := browser_client.why_not():
    pytest.skip(reason, allow_module_level=True)

_ENTRY = "ol.log li"


@pytest.fixture(scope="module")
def page() -> Iterator[Page]:
    with trying() as running:
        yield running


@pytest.fixture(scope="module")
def browser() -> Iterator[Visitor]:
    with visiting() as running:
        yield running


@pytest.fixture
def visitor(browser: Visitor, page: Page) -> Iterator[Visitor]:
    """The page, which has said nothing and asked nobody else in the end."""
    browser.open(f"{page.url}/#/try")
    browser.see("#method option", "Echo/Converse")
    yield browser
    assert [] == browser.said(), "neither an error nor something that the policy forbids"
    assert all(each.startswith((f"{page.url}/", "blob:")) for each in browser.asked())


def choose(visitor: Visitor, label: str) -> None:
    visitor.do("choose", selector="#method", label=label)


def echo(method: str) -> str:
    return f"echo: services.echo.Echo/{method}"


def fill(visitor: Visitor, name: str, text: str) -> None:
    visitor.do("fill", selector=f'[name="{name}"]', text=text)


def click(visitor: Visitor, text: str) -> None:
    visitor.do("click", selector=f'button:text-is("{text}")')


def answer(visitor: Visitor) -> object:
    visitor.see(".answer p", "Answered with HTTP 2")
    found: object = json.loads(visitor.see(".answer pre"))
    return found


def test_a_stream_of_answers_is_shown_as_it_comes_and_cancelled(visitor: Visitor) -> None:
    choose(visitor, echo("PerformStream"))
    fill(visitor, "messages", "1000000")
    fill(visitor, "each.delayS", "0.05")
    click(visitor, "Call")
    visitor.see(".answer p", "The answer comes.")
    visitor.until(f"document.querySelectorAll('{_ENTRY}').length > 3")
    click(visitor, "Cancel")
    visitor.see(".answer p", "Cancelled.")
    visitor.see("button[type=submit]", "Call")


def test_messages_go_both_ways(visitor: Visitor) -> None:
    choose(visitor, echo("Converse"))
    click(visitor, "Begin")
    visitor.see("button[type=submit]", "Send")
    for number, payload in enumerate(("AAEC", "AQ=="), 1):
        fill(visitor, "payload", payload)
        click(visitor, "Send")
        visitor.until(f"document.querySelectorAll('{_ENTRY}').length === {2 * number}")
        visitor.see(
            f"{_ENTRY}:last-child code", json.dumps({"payload": payload}, separators=(",", ":"))
        )
    click(visitor, "No more messages")
    visitor.see(".answer p", "Answered with HTTP 200")


def test_nested_messages_lists_and_choices_become_json(visitor: Visitor) -> None:
    choose(visitor, echo("Perform"))
    fill(visitor, "payload", "AAEC")
    fill(visitor, "status.message", "no such thing")
    fill(visitor, "status.code", "5")
    click(visitor, "Add to details")
    detail = {"@type": "type.googleapis.com/services.echo.EchoRequest", "payload": "AA=="}
    fill(visitor, "status.details.0", json.dumps(detail))
    click(visitor, "Write JSON")
    wanted = {
        "payload": "AAEC",
        "status": {"message": "no such thing", "code": 5, "details": [detail]},
    }
    written = visitor.do("run", script="document.querySelector('#json').value")
    assert wanted == json.loads(written)
    click(visitor, "Call")
    visitor.see(".answer p", "Failed with HTTP 404")


def test_an_operation_of_an_application_has_parameters(visitor: Visitor) -> None:
    choose(visitor, "GET /shop/price/{item}")
    visitor.see(".hint", "What it costs")
    click(visitor, "Call")
    visitor.see("[role=alert]", "item is missing")
    fill(visitor, "path:item", "green tea")
    fill(visitor, "query:count", "2")
    click(visitor, "Call")
    assert {"item": "green tea", "price": "6 EUR"} == answer(visitor)


def test_a_plain_handler_has_the_fields_of_its_data_type(visitor: Visitor) -> None:
    choose(visitor, "POST /houses")
    visitor.see(".hint", "Say what a house costs.")
    fill(visitor, "body.rooms", "2")
    click(visitor, "Call")
    assert {"price": 120_000.0} == answer(visitor)


def test_files_are_sent_as_forms(visitor: Visitor) -> None:
    choose(visitor, "POST /shop/files")
    content = base64.b64encode(bytes(range(200))).decode()
    visitor.do("give", selector='[name="body.file"]', file="a.bin", base64=content)
    fill(visitor, "body.name", "größer")
    click(visitor, "Call")
    assert {"name": "größer", "bytes": 200} == answer(visitor)


def test_a_picture_is_shown(visitor: Visitor) -> None:
    choose(visitor, "GET /shop/pixel")
    click(visitor, "Call")
    visitor.until("document.querySelector('.answer img')?.naturalWidth === 1")
    visitor.see(".answer figcaption", "bytes of image/png")


def test_server_sent_events_are_shown_as_they_come(visitor: Visitor) -> None:
    choose(visitor, "GET /shop/ticks")
    click(visitor, "Call")
    visitor.until("document.querySelector('.answer pre')?.textContent.includes('data: 5')")
    click(visitor, "Cancel")
    visitor.see(".answer p", "Cancelled.")


def test_any_other_path_can_be_called(visitor: Visitor) -> None:
    choose(visitor, "Any request")
    visitor.do("choose", selector='[name="verb"]', label="GET")
    fill(visitor, "path", "/shop/price/cake")
    click(visitor, "Call")
    assert {"item": "cake", "price": "3 EUR"} == answer(visitor)


def test_a_keyboard_does_it_all(visitor: Visitor) -> None:
    choose(visitor, echo("PerformStream"))
    visitor.do("run", script="document.querySelector('[name=messages]').focus()")
    for key in "1000000":
        visitor.do("press", key=key)
    fill(visitor, "each.delayS", "0.05")
    visitor.do("press", key="Enter")
    visitor.see(".answer p", "The answer comes.")
    # Enter does nothing while it runs, and Tab leads from the last field to the buttons.
    visitor.do("press", key="Enter")
    visitor.do("run", script="document.querySelector('button[type=submit]').focus()")
    visitor.do("press", key="Tab")
    assert "Cancel" == visitor.do("run", script="document.activeElement.textContent")
    visitor.do("press", key="Enter")
    visitor.see(".answer p", "Cancelled.")
    assert "Cancel" == visitor.do("run", script="document.activeElement.textContent")


def test_what_changes_is_said_and_has_a_role(visitor: Visitor) -> None:
    choose(visitor, echo("EchoStream"))
    fill(visitor, "messages", "2")
    click(visitor, "Call")
    visitor.see(".answer [role=status]", "Answered with HTTP 200")
    assert 2 == visitor.do("run", script="document.querySelectorAll('[role=log] li').length")
    for label in [echo("Converse"), "POST /shop/files", "GET /shop/price/{item}", "Any request"]:
        choose(visitor, label)
        unnamed = """[...document.querySelectorAll("input, select, textarea, button, a")]
            .filter((each) => !(each.labels?.length || each.getAttribute("aria-label")
              || each.textContent.trim())).map((each) => each.outerHTML)"""
        assert [] == visitor.do("run", script=unnamed)
        twice = """[...document.querySelectorAll("[id]")].map((each) => each.id)
            .filter((id, place, all) => all.indexOf(id) !== place)"""
        assert [] == visitor.do("run", script=twice)


def test_dark_and_light_differ(browser: Visitor, page: Page) -> None:
    found = set()
    for scheme in ("light", "dark"):
        browser.open(f"{page.url}/#/try", scheme=scheme)
        browser.see("#method option", "Echo/Converse")
        colours = (
            "[document.body, document.querySelector('button.main')].map((each) => "
            "getComputedStyle(each).backgroundColor).join()"
        )
        found.add(browser.do("run", script=colours))
    assert 2 == len(found)


def test_programs_find_the_document(visitor: Visitor, page: Page) -> None:
    assert "/-/openapi.json" == visitor.do(
        "run", script="document.querySelector('main a[href*=openapi]').getAttribute('href')"
    )
    assert 200 == page.get("/-/openapi.json").status_code
