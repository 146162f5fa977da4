"""The page to try methods follows edits of the code that it calls."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.contract.foreign import browser_client
from tests.support.mesh import running_mesh
from tests.support.visiting import visiting
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.external, pytest.mark.timeout(120)]

if reason := browser_client.why_not():
    pytest.skip(reason, allow_module_level=True)

_PAGE = re.compile(r"try it in a browser at (http://127\.0\.0\.1:\d+/#/try)\n")
_APP = """from dataclasses import dataclass

import pyserve


@dataclass
class House:
    rooms: int


@pyserve.deployment
class Houses:
    async def __call__(self, house: House) -> dict[str, int]:
        return {"price": 10 * house.rooms}


app = Houses.bind()
"""
_EDITED = _APP.replace("    rooms: int\n", "    rooms: int\n    gardens: int = 0\n").replace(
    "10 * house.rooms", "10 * house.rooms + house.gardens"
)


@pytest.mark.parity("G-61")
def test_an_edit_changes_the_form_that_is_open(tmp_path: Path) -> None:
    """Typed text stays, the new field is there, and the call goes to the new code."""
    (tmp_path / "houses.py").write_text(_APP)
    environment = {"PYSERVE_METRICS_PORT": "0"}
    with (
        running_mesh("houses:app", "--reload", folder=tmp_path, environment=environment) as mesh,
        visiting() as visitor,
    ):
        wait_until(lambda: _PAGE.search(mesh.output()))
        (url,) = _PAGE.findall(mesh.output())
        visitor.open(url)
        visitor.see("#method option", "POST /")
        visitor.do("choose", selector="#method", label="POST /")
        visitor.do("fill", selector='[name="body.rooms"]', text="2")

        (tmp_path / "houses.py").write_text(_EDITED)
        visitor.until("""document.querySelector('[name="body.gardens"]') !== null""")
        visitor.do("fill", selector='[name="body.gardens"]', text="3")
        visitor.do("click", selector='button:text-is("Call")')
        visitor.see(".answer p", "Answered with HTTP 2")
        assert {"price": 23} == json.loads(visitor.see(".answer pre"))
        # The terminal is told a moment after the page.
        wait_until(lambda: "houses.py: restarted Houses in " in mesh.output())
