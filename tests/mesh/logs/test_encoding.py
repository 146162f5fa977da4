"""A mesh has one encoding for its own lines and for those of applications from elsewhere."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest

from tests.mesh.logs.test_request_ids import PLACES, ask, objects
from tests.mesh.start.processes import Command, address_of, application, standing
from tests.support.mesh import running_mesh
from tests.support.waiting import wait_until

pytestmark = pytest.mark.slow
_APP = "tests.mesh.logs.apps:app"


def _lines(mesh: Command) -> list[dict[str, Any]]:
    return [json.loads(line) for line in mesh.output().splitlines()]


@pytest.mark.parametrize(
    "of_driver", [{}, {"PYSERVE_LOG_ENCODING": "JSON"}], ids=["silent", "told"]
)
def test_every_line_is_an_object_wherever_the_deploy_comes_from(
    mesh_environment: dict[str, str], of_driver: dict[str, str]
) -> None:
    # By an older name, of which a line tells.
    of_mesh = {**mesh_environment, "RAY_SERVE_LOG_ENCODING": "JSON", "RAY_SERVE_LOG_TO_STDERR": "1"}
    with standing(of_mesh) as mesh, application({**mesh_environment, **of_driver}, _APP):
        address = address_of(mesh_environment)
        answer = httpx.get(
            f"http://{address}/",
            params={"text": "fail one"},
            headers={"x-request-id": "of-client-1"},
            timeout=30,
        )
        assert answer.is_server_error
        httpx.get(
            f"http://{address}/",
            params={"text": "two"},
            headers={"x-request-id": "of-client-2"},
            timeout=30,
        )
        for place in PLACES:
            mesh.shows(f'"{place} two"')
        wait_until(lambda: "unexpected LookupError" in mesh.output(), what="the failure")
        found = _lines(mesh)

    by_message = {each["message"]: each for each in found}
    for place in PLACES:
        assert "of-client-2" == by_message[f"{place} two"]["request_id"]
        assert "replica" == by_message[f"{place} two"]["component"]
    (failed,) = (each for each in found if "unexpected LookupError" in each["message"])
    assert "of-client-1" == failed["request_id"]
    assert "LookupError: fail one" in failed["exc_text"]
    (warning, *_), said = found, [each["message"] for each in found]
    assert ("WARNING", "supervisor") == (warning["levelname"], warning["component"])
    assert any(message.startswith("the mesh is ready at ") for message in said)


def test_a_deployment_may_say_another_encoding_than_its_mesh(
    mesh_environment: dict[str, str],
) -> None:
    of_mesh = {**mesh_environment, "PYSERVE_LOG_ENCODING": "JSON"}
    of_driver = {**mesh_environment, "PYSERVE_LOG_ENCODING": "TEXT"}
    with standing(of_mesh) as mesh, application(of_driver, _APP):
        mesh.shows("constructed")
        (line,) = (each for each in _lines(mesh) if "constructed" in each["message"])
    assert "output" == line["name"]
    assert line["message"].endswith(" shop: constructed")


def test_replicas_in_the_process_of_the_command_log_so_too() -> None:
    environment = {"PYSERVE_LOG_ENCODING": "JSON"}
    with running_mesh("tests.mesh.logs.apps:app", "--in-process", environment=environment) as mesh:
        ask(mesh, "one", "from-client-1")
        wait_until(lambda: '"shop one"' in mesh.output())
        by_message = {each["message"]: each for each in objects(mesh)}
    assert "from-client-1" == by_message["shop one"]["request_id"]
