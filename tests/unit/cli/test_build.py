"""``pyserve build`` writes what ``pyserve deploy`` reads, with every option that differs."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from pyserve.cli.applications import load_file
from pyserve.cli.build import build
from pyserve.config.files import MeshFile
from pyserve.config.schema import ServeDeploySchema

_BUILDERS = "tests.unit.cli.builders"


@pytest.fixture(autouse=True)
def own_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))


def built(*arguments: str) -> str:
    result = CliRunner().invoke(build, arguments, catch_exceptions=False)
    assert 0 == result.exit_code, result.output
    return result.stdout


@pytest.mark.parity("G-60")
def test_every_deployment_is_there_with_the_options_that_differ() -> None:
    found = yaml.safe_load(built(f"{_BUILDERS}:tuned"))

    assert {
        "applications": [
            {
                "name": "app1",
                "route_prefix": "/",
                "import_path": f"{_BUILDERS}:tuned",
                "deployments": [
                    {"name": "Plain"},
                    {
                        "name": "Tuned",
                        "max_ongoing_requests": 7,
                        "autoscaling_config": {"max_replicas": 4},
                        "resources": {"num_cpus": 0.5},
                        "env_vars": {"A": "1"},
                    },
                ],
            }
        ]
    } == found


@pytest.mark.parity("G-60")
def test_several_applications_have_prefixes_of_their_own(tmp_path: Path) -> None:
    path = tmp_path / "serve.yaml"

    built(f"{_BUILDERS}:tuned", f"{_BUILDERS}:shout", "-o", str(path))

    applications = ServeDeploySchema.model_validate(yaml.safe_load(path.read_text())).applications
    assert [("app1", "/app1"), ("app2", "/app2")] == [
        (each.name, each.route_prefix) for each in applications
    ]


@pytest.mark.parity("G-60")
def test_what_is_built_deploys_what_the_code_says() -> None:
    def options(text: str) -> list[Any]:
        (found,) = load_file(MeshFile("serve.yaml", text))
        return [each.options for each in found.packed.deployments]

    text = built(f"{_BUILDERS}:tuned")
    bare = yaml.safe_load(text)
    del bare["applications"][0]["deployments"]

    assert options(yaml.safe_dump(bare)) == options(text)


@pytest.mark.parity("G-59")
def test_the_schema_is_json() -> None:
    assert "applications" in json.loads(built("--schema"))["properties"]


@pytest.mark.parametrize("arguments", [[], ["--schema", "a:b"]])
def test_import_paths_or_the_schema_are_asked_for(arguments: list[str]) -> None:
    result = CliRunner().invoke(build, arguments)

    assert 2 == result.exit_code
    assert "give either import paths of applications, or --schema" in result.output
