"""The section of the README about docker-compose is executed, where an engine is."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.compose.project import ROOT, NoEngine, Project, find_compose
from tests.docs.page import PRINTED_ADDRESS, read_blocks, run_commands
from tests.support.waiting import wait_until

_BUILD_TIMEOUT_S = 600.0
_READY_TIMEOUT_S = 180.0
_FILES = ("docker-compose.yml", "deploy/docker/docker-compose.wheel.yml")
BLOCKS = [each for each in read_blocks((ROOT / "README.md").read_text()) if each.needs_engine]


@pytest.fixture
def project(monkeypatch: pytest.MonkeyPatch) -> Iterator[Project]:
    """Give compose a project of its own, which installs the wheel of this tree."""
    try:
        compose = find_compose()
    except NoEngine as missing:
        pytest.skip(str(missing))
    if not [*(ROOT / "dist").glob("*.whl")]:
        pytest.skip("there is no wheel in dist; make wheel makes it, and make compose runs this")
    with Project(compose) as made:
        for name, value in made.variables.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setenv("COMPOSE_PROJECT_NAME", made.name)
        monkeypatch.setenv("COMPOSE_FILE", os.pathsep.join(_FILES))
        yield made


def test_the_quick_start_has_a_section_about_containers() -> None:
    assert 2 == len(BLOCKS)


@pytest.mark.slow
@pytest.mark.external
@pytest.mark.timeout(900)
def test_the_section_does_what_it_shows(project: Project) -> None:
    first, second = (
        each.body.replace(PRINTED_ADDRESS, f"127.0.0.1:{project.port}").replace(
            "docker-compose ", project.command + " "
        )
        for each in BLOCKS
    )
    assert 2 == run_commands(first, ROOT, _BUILD_TIMEOUT_S)
    wait_until(
        lambda: {"RUNNING"} == set(project.states().values()) and len(project.states()) == 2,
        _READY_TIMEOUT_S,
    )
    assert 3 == run_commands(second, ROOT, _BUILD_TIMEOUT_S)
    assert [] == project.containers("digits")
