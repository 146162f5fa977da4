"""What commands of Ray Serve are told beside an import path: folders, environments, consent."""

import json
import sys
from collections.abc import Mapping
from pathlib import Path

import click
import pytest
import yaml
from click.testing import CliRunner

from pyserve.api.graph import PackedApplication
from pyserve.cli.applications import file_of, ingress_options, load_file, pack_target
from pyserve.cli.build import build
from pyserve.cli.commands import CommandFailed, commands
from pyserve.cli.target import Asked, runtime_env_options
from pyserve.errors import OptionError, PyserveError

_SHOP = """
import pyserve

@pyserve.deployment(env_vars={"A": "code", "B": "code"})
class Cart:
    def __call__(self, request):
        return "cart"

app = Cart.bind()

def add_stock_to_server(servicer, server):
    pass
"""


@pytest.fixture(autouse=True)
def own_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return a folder with a package; commands run in another one."""
    package = tmp_path / "code" / f"asked_{abs(hash(tmp_path))}" / "stores"
    package.mkdir(parents=True)
    (package / "shop.py").write_text(_SHOP)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    return f"{package.parent.name}.stores.shop"


def _folder() -> str:
    return str(Path.cwd().parent / "code")


def _read(arguments: list[str]) -> Mapping[str, object]:
    """Return what a command gets of options that say what processes are given."""
    found: dict[str, object] = {}

    def noted(runtime_env: Mapping[str, object]) -> None:
        found.update(runtime_env)

    click.command()(runtime_env_options(noted)).main(arguments, standalone_mode=False)
    return found


def test_import_paths_may_have_dots_alone(shop: str) -> None:
    asked = Asked(target=f"{shop}.app", app_dir=_folder())

    (deployment,) = pack_target(asked).deployments

    assert f"{shop}:Cart" == deployment.code.import_path
    assert _folder() == deployment.code.sys_path[0]


@pytest.mark.parametrize("target", ["shop.py", "stores/shop.app", "shop"])
def test_what_is_no_path_with_dots_is_told_as_before(target: str) -> None:
    with pytest.raises(CommandFailed, match=r"is no import path; write module:attribute"):
        pack_target(Asked(target=target))


def test_modules_are_looked_for_in_the_folder_that_is_named(shop: str) -> None:
    """Also those of a file, and the functions that it names for gRPC."""
    content = {
        "grpc_options": {"grpc_servicer_functions": [f"{shop}.add_stock_to_server"]},
        "applications": [{"import_path": f"{shop}:app"}],
    }
    Path("serve.json").write_text(json.dumps(content))
    file = file_of(Asked(target="serve.json"))

    ingress_options(file, _folder())
    (found,) = load_file(file, _folder())

    assert _folder() == found.packed.deployments[0].code.sys_path[0]


@pytest.mark.parametrize("through_a_file", [True, False])
def test_every_deployment_is_given_what_the_command_line_says(
    shop: str, through_a_file: bool
) -> None:
    environment = _read(
        ["--runtime-env-json", '{"env_vars": {"A": "told"}}', "--working-dir", _folder()]
    )
    asked = Asked(target=f"{shop}:app", runtime_env=environment)

    packed: PackedApplication
    if through_a_file:  # As `deploy` does, and `run --reload`.
        (declared,) = load_file(file_of(asked))
        packed = declared.packed
    else:
        packed = pack_target(asked)

    options = packed.deployments[0].options
    assert {"A": "code", "B": "code"} == options.env_vars, "the code is more particular"
    assert _folder() == options.working_dir


def test_a_file_may_say_what_processes_are_given(tmp_path: Path) -> None:
    file = tmp_path / "env.yaml"
    file.write_text("env_vars: {COLOUR: red}\nworking_dir: /nowhere\n")

    found = _read(["--runtime-env", str(file), "--working-dir", "/srv"])

    assert {"env_vars": {"COLOUR": "red"}, "working_dir": "/srv"} == found


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--runtime-env-json", "{"], "--runtime-env-json is not JSON"),
        (["--runtime-env-json", "[]"], "--runtime-env-json"),
        (["--runtime-env-json", '{"conda": "x"}'], r"--runtime-env-json\['conda'\] is not supp"),
        (["--runtime-env", "bad.yaml"], "bad.yaml:1:5: this is no YAML"),
        (["--runtime-env", "bad.yaml", "--runtime-env-json", "{}"], "say the same; keep one"),
    ],
)
def test_what_cannot_be_given_is_refused_where_it_was_written(
    arguments: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("bad.yaml").write_text("a: b: c\n")

    with pytest.raises((click.UsageError, OptionError, PyserveError), match=message):
        _read(arguments)


@pytest.mark.parametrize("form", ["{}.add_stock_to_server", "{}:add_stock_to_server"])
def test_a_file_is_built_with_the_functions_for_grpc(shop: str, form: str) -> None:
    function = form.format(shop)
    arguments = [f"{shop}.app", "--app-dir", _folder(), "--grpc-servicer-functions", function]

    result = CliRunner().invoke(build, arguments, catch_exceptions=False)

    found = yaml.safe_load(result.stdout)
    assert {"grpc_servicer_functions": [function]} == found["grpc_options"]
    assert f"{shop}.app" == found["applications"][0]["import_path"]


def test_a_file_is_not_built_with_a_function_that_is_not_there(shop: str) -> None:
    arguments = [f"{shop}.app", "-d", _folder(), "--grpc-servicer-functions", f"{shop}.missing"]

    with pytest.raises(OptionError, match="missing"):
        CliRunner().invoke(build, arguments, catch_exceptions=False)


@pytest.mark.parametrize("consent", ["-y", "--yes"])
def test_whoever_agrees_beforehand_is_heard(
    consent: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYSERVE_HOME", str(tmp_path))

    with pytest.raises(PyserveError, match="there is nothing to shut down"):
        commands.main(["shutdown", consent], standalone_mode=False)
