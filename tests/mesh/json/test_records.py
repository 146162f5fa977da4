"""Records of calls in JSON say what their clients were told."""

from __future__ import annotations

import base64
import json
import os
import re
from collections.abc import Iterator
from typing import Final

import httpx
import pytest

from tests.mesh.commands import pyserve
from tests.mesh.json import forms_pb2
from tests.mesh.metrics.scraping import Page, scraped_until
from tests.mesh.metrics.test_nodes import admin_of
from tests.support.mesh import RunningMesh, running_mesh
from tests.support.waiting import wait_until

pytestmark = pytest.mark.slow

_GIVE: Final = "/forms.v1.Forms/Give"
_ECHO: Final = "/forms.v1.Forms/Echo"
_REASON: Final = "cannot be written as JSON: a time is of the years 1 to 9999"


@pytest.fixture(scope="module")
def mesh() -> Iterator[RunningMesh]:
    with running_mesh("tests.mesh.json.apps:forms", "--access-log") as running:
        yield running


def _post(mesh: RunningMesh, path: str, text: str, request_id: str) -> httpx.Response:
    headers = {
        "content-type": "application/json",
        "x-request-id": request_id,
        "x-pyserve-explain": "1",
    }
    url = f"http://{mesh.address}{path}"
    return httpx.post(url, content=text, headers=headers, timeout=30, trust_env=False)


def _line(mesh: RunningMesh, request_id: str) -> str:
    """Return the line of the access log, which the ingress writes a moment later."""
    pattern = re.compile(rf"pyserve\.access \[{request_id}\]: (.*)")
    wait_until(lambda: pattern.search(mesh.output()) is not None)
    (line,) = pattern.findall(mesh.output())
    return str(line)


def _environment(mesh: RunningMesh) -> dict[str, str]:
    return {**os.environ, "PYSERVE_HOME": str(mesh.home)}


def _explained(mesh: RunningMesh, *arguments: str) -> str:
    done = pyserve("explain", *arguments, environment=_environment(mesh))
    assert 0 == done.returncode, done.stderr
    return done.stdout


def test_an_answer_that_has_no_json_is_recorded_as_its_client_was_told(mesh: RunningMesh) -> None:
    wrong = forms_pb2.Holder()
    wrong.single.timestamp_field.seconds = 1_764_000_000_000  # milliseconds, by mistake
    given = json.dumps({"bytes": base64.b64encode(wrong.SerializeToString()).decode()})
    answer = _post(mesh, _GIVE, given, "bad-time")
    assert (500, "internal") == (answer.status_code, answer.json()["code"])

    line = _line(mesh, "bad-time")
    assert line.startswith(f"{_GIVE} INTERNAL "), line
    assert ", by Forms#" in line
    assert line.endswith(_REASON), line
    told = _explained(mesh, "bad-time")
    assert re.search(rf"INTERNAL \(.*{_REASON}\), answered by the ingress, .* failed", told), told
    failed = _explained(mesh).partition("the slowest")[0]
    assert "bad-time" in failed
    found = json.loads(_explained(mesh, "bad-time", "--json"))
    assert ["ok"] == [attempt["outcome"] for attempt in found["attempts"]]

    def is_counted(page: Page) -> bool:
        ended = "pyserve_router_ended_calls_total"
        return page.sum(ended, code="INTERNAL") == 1 and page.sum(ended, code="OK") == 0

    scraped_until(admin_of(_environment(mesh)), is_counted)


def test_a_body_that_is_refused_has_a_line_without_a_replica(mesh: RunningMesh) -> None:
    answer = _post(mesh, _ECHO, '{"single": {"int32Field": "secret"}}', "bad-body")
    assert (400, "invalid_argument") == (answer.status_code, answer.json()["code"])
    assert "secret" in answer.text

    line = _line(mesh, "bad-body")
    assert line.startswith(f"{_ECHO} INVALID_ARGUMENT "), line
    assert ", by " not in line
    assert "secret" not in line
    told = _explained(mesh, "bad-body")
    assert "INVALID_ARGUMENT, answered by the ingress" in told
    assert "secret" not in told
